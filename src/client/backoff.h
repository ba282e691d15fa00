// backoff: how long to wait before which try.
#pragma once

#include <oncekey/client.h>

#include <optional>

namespace oncekey {

// `attempt` is the number of the try to come, 2 for the first retry; `chance` is from 0 to less than 1.
Millis wait_before(std::uint32_t attempt, const RetryRules& rules, double chance);

// The same where the server said how long to stay away. Those who were told the same second come back spread over as
// long a stretch as their backoff would have spread them.
Millis wait_before(std::uint32_t attempt, const RetryRules& rules, double chance, std::optional<Millis> retry_after);

// Before the server is asked again for the answer of a request that is still running: what it said, and up to a quarter
// more.
Millis wait_for_answer(const RetryRules& rules, double chance, Millis retry_after);

} // namespace oncekey
