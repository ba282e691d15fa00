#include "delivery/attempt.h"

#include "base/backoff.h"
#include "core/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace oncekey {
namespace {

// What a counter of two bytes holds. A message that is tried more often stays at it; its budget ends it.
constexpr int kAttemptsCounted = 65535;
// A message that stood behind others until its budget was spent has been tried once or never: it gets so many tries.
constexpr int kTriesOfAnOrderMin = 5;
// A receiver may ask for patience, but not for silence until the message is dead.
constexpr Millis kRetryAfterMax = std::chrono::hours(6);

std::string how_it_went(const Delivered& delivered) {
  if (delivered.status == 0) return delivered.reason;
  return fmt::format("{} {}", delivered.status, delivered.reason);
}

} // namespace

int attempt_number(const StoredResponse& message) { return std::min(message.status + 1, kAttemptsCounted); }

AttemptEnd end_of(const Endpoint& endpoint, StoredResponse message, const Delivered& delivered, Stay stay,
                  double chance) {
  AttemptEnd end;
  const int attempt = attempt_number(message);
  end.message = std::move(message);
  end.message.status = attempt;
  end.message.reason = how_it_went(delivered);
  const Judgement judgement = delivered.status == 0 ? Judgement::retry : meaning_of(delivered.status).delivery;
  if (judgement == Judgement::success) {
    end.kind = AttemptEnd::Kind::completed;
    if (!endpoint.keep_delivered) {
      end.message.headers.clear();
      end.message.body.clear();
    }
    return end;
  }
  const Millis pause =
      pause_after(static_cast<std::uint32_t>(attempt), endpoint.first_pause, endpoint.longest_pause, chance);
  end.pause = lengthened(pause, endpoint.first_pause, delivered.retry_after, kRetryAfterMax);
  if (judgement == Judgement::refusal) {
    end.kind = AttemptEnd::Kind::dead;
  } else if (stay.age < endpoint.budget) {
    end.kind = AttemptEnd::Kind::again;
    end.pause = std::min(end.pause, endpoint.budget - stay.age); // the last attempt is made when the budget ends
  } else if (stay.ordered && attempt < kTriesOfAnOrderMin) {
    end.kind = AttemptEnd::Kind::again;
  } else {
    end.kind = AttemptEnd::Kind::dead;
  }
  return end;
}

AttemptEnd untried(StoredResponse message, Millis pause) {
  AttemptEnd end;
  end.kind = AttemptEnd::Kind::again;
  end.pause = pause;
  end.message = std::move(message);
  return end;
}

} // namespace oncekey
