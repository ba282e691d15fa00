#include "delivery/attempt.h"

#include "base/backoff.h"
#include "base/durations.h"
#include "core/judge.h"

#include <fmt/format.h>

namespace oncekey {
namespace {

// A job that stood behind others until its budget was spent has been tried once or never: it gets so many tries.
constexpr std::uint32_t kTriesOfAnOrderMin = 5;
// A receiver may ask for patience, but not for silence until the job is dead.
constexpr Millis kRetryAfterMax = std::chrono::hours(6);

} // namespace

AttemptEnd end_of(const Endpoint& endpoint, const StoredJob& job, const Delivered& delivered, Millis age,
                  double chance) {
  AttemptEnd end;
  end.result = delivered.result;
  const int status = delivered.result.status;
  const Judgement judgement = status == 0 ? Judgement::retry : meaning_of(status).delivery;
  if (judgement == Judgement::success) {
    end.keep_message = endpoint.keep_delivered;
    return end;
  }
  // Past a million tries the pause is the longest one anyway.
  const std::uint32_t tries = std::min<std::uint32_t>(job.attempts, 1'000'000) + 1;
  end.kind = AttemptEnd::Kind::again;
  end.pause = lengthened(pause_after(tries, endpoint.first_pause, endpoint.longest_pause, chance), endpoint.first_pause,
                         delivered.retry_after, kRetryAfterMax);
  if (judgement == Judgement::refusal) {
    end.kind = AttemptEnd::Kind::dead;
    end.why_dead = fmt::format("the receiver wants no more tries: it answered {}", status);
  } else if (age < endpoint.budget) {
    end.pause = std::min(end.pause, endpoint.budget - age); // the last attempt is made when the budget ends
  } else if (!job.ordered || tries >= kTriesOfAnOrderMin) {
    end.kind = AttemptEnd::Kind::dead;
    end.why_dead = fmt::format("not delivered within {}", format_duration(endpoint.budget));
  }
  return end;
}

} // namespace oncekey
