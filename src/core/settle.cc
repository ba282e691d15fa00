#include "core/settle.h"

#include "base/enum_name.h"

namespace oncekey {
namespace {

Settlement settle_answer(const Policy& policy, const Answered& answer) {
  // The upstream's own header comes first: only the upstream knows whether it executed.
  const auto outcome = answer.headers.get(kOutcomeHeader);
  if (outcome && equal_ignoring_case(*outcome, "not-executed")) return Settlement::release;
  if (!policy.kept.contains(answer.status)) return Settlement::release;
  if (policy.heed_should_retry) {
    const auto should_retry = answer.headers.get("Stripe-Should-Retry");
    if (should_retry && equal_ignoring_case(*should_retry, "true")) return Settlement::release;
  }
  return Settlement::keep;
}

Settlement settle_unusable(const Policy& policy, const Unusable& answer) {
  // Without a status line it is unknown whether the upstream executed, and a retry would not tell.
  if (answer.status == 0) return Settlement::hold;
  const Settlement by_status = settle_answer(policy, Answered{answer.status, answer.headers});
  return by_status == Settlement::keep ? Settlement::executed : by_status;
}

} // namespace

std::string_view to_string(Settlement settlement) { return enum_name(settlement); }

Settlement settle(const Policy& policy, const Outcome& outcome) {
  if (std::holds_alternative<NotSent>(outcome)) return Settlement::release;
  if (const auto* answer = std::get_if<Answered>(&outcome)) return settle_answer(policy, *answer);
  if (const auto* answer = std::get_if<Unusable>(&outcome)) return settle_unusable(policy, *answer);
  switch (policy.on_unknown) {
    case OnUnknown::hold:
      return Settlement::hold;
    case OnUnknown::abandon:
      return Settlement::abandon;
  }
  return Settlement::hold;
}

} // namespace oncekey
