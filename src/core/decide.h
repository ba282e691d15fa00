// decide: what to do after the claim was answered.
//
// The second of the three decisions. Pure: the clock reading comes with the store's answer.
#pragma once

#include "core/policy.h"
#include "core/store.h"

#include <oncekey/record.h>

#include <chrono>
#include <optional>
#include <string_view>

namespace oncekey {

enum class Verdict {
  execute,         // this request is the owner: forward it
  probe,           // it took an abandoned claim over: ask the upstream for the outcome first
  replay,          // answer from the record
  mismatch,        // another request's key; looked at before anything else
  in_progress,     // its owner is at work: wait or refuse
  hold,            // abandoned, and the policy does not execute again: make it indeterminate
  indeterminate,   // only an operator can settle it
  answer_not_kept, // completed, but the answer was not kept
};
std::string_view to_string(Verdict verdict);

struct Decision {
  Verdict verdict;
  // For in_progress: how long its owner has had it.
  Millis age{0};
  // For in_progress: how much of the lease is left, exactly. A waiter looks again at the latest then.
  Millis lease_left{0};
};

Decision decide(const Policy& policy, const Fingerprint& fingerprint, const ClaimAnswer& answer);

// When a retry of a request in progress is likely to be answered. `usual` is how long such requests take, if that is
// known. One that has taken longer than that may take half as long again.
std::chrono::seconds retry_after(Millis age, std::optional<Millis> usual);
// When the owner is gone, its lease has to end first.
std::chrono::seconds retry_after_lease(Millis lease_left);

// How claims under this policy treat an abandoned record.
Abandoned abandoned_rule(const Policy& policy);

} // namespace oncekey
