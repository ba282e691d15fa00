#include "delivery/attempt.h"

#include "base/durations.h"
#include "client/backoff.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

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
  if (status >= 200 && status < 300) {
    end.keep_message = endpoint.keep_delivered;
    return end;
  }
  RetryRules rules;
  rules.initial = endpoint.first_pause;
  rules.longest = endpoint.longest_pause;
  rules.retry_after_max = kRetryAfterMax;
  const std::uint32_t tries =
      std::min<std::uint32_t>(job.attempts, 1'000'000) + 1; // the pauses have long ended to grow
  end.kind = AttemptEnd::Kind::again;
  end.pause = wait_before(tries + 1, rules, chance, delivered.retry_after);
  if (age < endpoint.budget) {
    end.pause = std::min(end.pause, endpoint.budget - age); // the last attempt is made when the budget ends
  } else if (!job.ordered || tries >= kTriesOfAnOrderMin) {
    end.kind = AttemptEnd::Kind::dead;
    end.why_dead = fmt::format("not delivered within {}", format_duration(endpoint.budget));
  }
  return end;
}

} // namespace oncekey
