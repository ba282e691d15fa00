#include "core/decide.h"

#include "base/enum_name.h"

#include <algorithm>

namespace oncekey {
namespace {

// A client that asks more often than once a second wins nothing; one told to come after a long time does not come
// earlier, although the answer may be there.
constexpr std::chrono::seconds kSoonest{1};
constexpr std::chrono::seconds kLatest{10};

// The lease is over, and still the claim did not make us the owner: the record changed in between. Nothing may be
// executed without owning it, so the caller asks again, at once if it waits.
Decision ask_again() { return {Verdict::in_progress, Millis(0), Millis(0)}; }

Decision decide_found(const Policy& policy, const Record& record, Time now) {
  switch (record.state) {
    case RecordState::completed:
      // A body still on its way, or one that never arrived whole, is no more replayable than one too long to keep.
      if (!record.response || record.response->omitted || record.response->unfinished())
        return {Verdict::answer_not_kept};
      return {Verdict::replay};
    case RecordState::indeterminate:
      return {Verdict::indeterminate};
    case RecordState::in_progress:
      break;
  }
  if (!record.lease_over(now)) {
    // The clock of a store may be read a little before the claim that it is compared with.
    const Millis age = std::max(Millis(0), now - record.claimed_at());
    return {Verdict::in_progress, age, record.lease_until - now};
  }
  // An operator's word counts more than the policy's: holding the record again would undo it.
  if (policy.on_abandoned == OnAbandoned::hold && !record.rerun) return {Verdict::hold};
  return ask_again();
}

} // namespace

std::string_view to_string(Verdict verdict) { return enum_name(verdict); }

Decision decide(const Policy& policy, const Fingerprint& fingerprint, const ClaimAnswer& answer) {
  if (const auto* claimed = std::get_if<Claimed>(&answer)) {
    const bool ask_first = claimed->took_over && policy.on_abandoned == OnAbandoned::probe;
    return {ask_first ? Verdict::probe : Verdict::execute};
  }
  const auto& found = std::get<Found>(answer);
  if (found.record->fingerprint != fingerprint) return {Verdict::mismatch};
  return decide_found(policy, *found.record, found.now);
}

std::chrono::seconds retry_after(Millis age, std::optional<Millis> usual) {
  const Millis left = usual && *usual > age ? *usual - age : age / 2;
  return std::clamp(std::chrono::ceil<std::chrono::seconds>(left), kSoonest, kLatest);
}

std::chrono::seconds retry_after_lease(Millis lease_left) {
  return std::max(std::chrono::ceil<std::chrono::seconds>(lease_left), kSoonest);
}

Abandoned abandoned_rule(const Policy& policy) {
  switch (policy.on_abandoned) {
    case OnAbandoned::hold:
      return Abandoned::leave;
    case OnAbandoned::reexecute:
    case OnAbandoned::probe:
      return Abandoned::take_over;
  }
  return Abandoned::leave;
}

} // namespace oncekey
