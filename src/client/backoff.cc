#include "client/backoff.h"

#include <oncekey/check.h>

#include <algorithm>

namespace oncekey {

Millis wait_before(std::uint32_t attempt, const RetryRules& rules, double chance) {
  ONCEKEY_CHECK(attempt >= 2, "the first try waits for nothing");
  Millis most = rules.initial;
  for (std::uint32_t n = 1; n < attempt && most < rules.longest; ++n) most *= 2;
  most = std::min(most, rules.longest);
  const auto jittered = static_cast<std::int64_t>(static_cast<double>(most.count()) * (0.5 + 0.5 * chance));
  return std::max(Millis(jittered), rules.initial);
}

Millis wait_before(std::uint32_t attempt, const RetryRules& rules, double chance, std::optional<Millis> retry_after) {
  const Millis own = wait_before(attempt, rules, chance);
  if (!retry_after) return own;
  const Millis asked = std::clamp(*retry_after, Millis(0), rules.retry_after_max);
  return std::max(own, asked + (own - rules.initial));
}

Millis wait_for_answer(const RetryRules& rules, double chance, Millis retry_after) {
  const Millis asked = std::clamp(retry_after, rules.initial, std::max(rules.initial, rules.retry_after_max));
  return asked + Millis(static_cast<std::int64_t>(static_cast<double>(asked.count()) * 0.25 * chance));
}

} // namespace oncekey
