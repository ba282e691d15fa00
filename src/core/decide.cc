#include "core/decide.h"

#include <algorithm>

namespace oncekey {
namespace {

Decision in_progress(Millis lease_left) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(lease_left);
  return {Verdict::in_progress, std::max(seconds, std::chrono::seconds(1)), lease_left};
}

// The lease is over, and still the claim did not make us the owner: the record changed in between. Nothing may be
// executed without owning it, so the caller asks again, at once if it waits.
Decision ask_again() { return in_progress(Millis(0)); }

Decision decide_found(const Policy& policy, const Record& record, Time now) {
  switch (record.state) {
    case RecordState::completed:
      // A body still on its way, or one that never arrived whole, is no more replayable than one too long to keep.
      if (!record.response || record.response->omitted) return {Verdict::answer_not_kept};
      return {Verdict::replay};
    case RecordState::indeterminate:
      return {Verdict::indeterminate};
    case RecordState::in_progress:
      break;
  }
  if (!record.lease_over(now)) return in_progress(record.lease_until - now);
  // An operator's word counts more than the policy's: holding the record again would undo it.
  if (policy.on_abandoned == OnAbandoned::hold && !record.rerun) return {Verdict::hold};
  return ask_again();
}

} // namespace

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::execute:
      return "execute";
    case Verdict::probe:
      return "probe";
    case Verdict::replay:
      return "replay";
    case Verdict::mismatch:
      return "mismatch";
    case Verdict::in_progress:
      return "in_progress";
    case Verdict::hold:
      return "hold";
    case Verdict::indeterminate:
      return "indeterminate";
    case Verdict::answer_not_kept:
      return "answer_not_kept";
  }
  return "unknown";
}

Decision decide(const Policy& policy, const Fingerprint& fingerprint, const ClaimAnswer& answer) {
  if (const auto* claimed = std::get_if<Claimed>(&answer)) {
    const bool ask_first = claimed->took_over && policy.on_abandoned == OnAbandoned::probe;
    return {ask_first ? Verdict::probe : Verdict::execute};
  }
  const auto& found = std::get<Found>(answer);
  if (found.record->fingerprint != fingerprint) return {Verdict::mismatch};
  return decide_found(policy, *found.record, found.now);
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
