// transitions: what each store call does to a record, as pure functions.
//
// The embedded stores apply these under their own lock or writer; stores that run elsewhere (SQL, Lua) say the same in
// their own language, and the conformance suite holds all of them to it. A step answers with the record to write, or
// nothing when the store stays as it is.
//
// None of the steps looks at the headers or the body of a found response, and none writes a record on from one: a
// record decoded without them (DecodeBody::no) is enough.
//
// `fence` in claim_step is the next number of the store's counter. It is used if the answer is Claimed.
#pragma once

#include "core/store.h"

#include <oncekey/record.h>

#include <optional>

namespace oncekey {

// Does the owner of the found record work in this process? Then a lease that is over is renewed: see
// Store::owners_here.
enum class OwnerWorksHere { no, yes };

struct ClaimStep {
  std::optional<Record> write;
  ClaimAnswer answer;
};
// `found` is what the store has under the id, expired or not.
ClaimStep claim_step(const std::optional<Record>& found, const ClaimRequest& request, std::uint64_t fence, Time now,
                     OwnerWorksHere owner = OwnerWorksHere::no);

// Whether claim_step would write. When it would not, its answer is Found with the record as it is: a store may then
// hand over the record it has read, body and all, without copying it.
bool claim_changes(const std::optional<Record>& found, const ClaimRequest& request, Time now,
                   OwnerWorksHere owner = OwnerWorksHere::no);

// Asks `owners` only where it matters: about records whose lease is over.
OwnerWorksHere works_here(const Store::OwnersHere& owners, const RecordId& id, const std::optional<Record>& found,
                          Time now);

struct FenceStep {
  std::optional<Record> write;
  bool erase = false; // the record is deleted
  FenceAnswer answer = FenceAnswer::lost;
};
FenceStep renew_step(const std::optional<Record>& found, std::uint64_t fence, Millis lease, Time now);
FenceStep complete_step(const std::optional<Record>& found, std::uint64_t fence, StoredResponse response, Time now);
FenceStep release_step(const std::optional<Record>& found, std::uint64_t fence, Time now);
FenceStep hold_step(const std::optional<Record>& found, std::uint64_t fence, Holder by, Time now);
// The one that the call asks for. Its response is moved out.
FenceStep fence_step(const std::optional<Record>& found, FenceCall& call, Time now);
// A finder must not hold what a call of this process works on.
bool is_kept_from(const FenceCall& call, const Store::OwnersHere& owners);

struct OperatorStep {
  std::optional<Record> write;
  bool erase = false; // the record is deleted
  OperatorAnswer answer = OperatorAnswer::absent;
};
OperatorStep operate_step(const std::optional<Record>& found, OperatorAction action, StoredResponse response, Time now);

} // namespace oncekey
