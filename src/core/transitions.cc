#include "core/transitions.h"

#include <algorithm>
#include <utility>

namespace oncekey {
namespace {

// A claim starts afresh. An expired record may still be there.
bool is_free(const std::optional<Record>& found, Time now) { return !found || found->expired(now); }

bool may_take_over(const Record& found, const ClaimRequest& request, Time now) {
  return found.abandoned(now) && (request.abandoned == Abandoned::take_over || found.rerun);
}

// Whether `fence` owns the record and has not settled it. The lease may be over: as long as no other claim has taken
// the record over, the slow owner's write is the only one there can be.
bool owns(const std::optional<Record>& found, std::uint64_t fence, Time now) {
  return found && !found->expired(now) && found->state == RecordState::in_progress && found->fence == fence;
}

Record fresh_record(const ClaimRequest& request, std::uint64_t fence, Time now) {
  Record record;
  record.state = RecordState::in_progress;
  record.fingerprint = request.fingerprint;
  record.fence = fence;
  record.first_received = now;
  record.expires_at = now + request.retention;
  record.lease_until = now + request.lease;
  record.claimed_by = request.token;
  record.context = request.context;
  record.route = request.route;
  record.key = request.key;
  record.method = request.method;
  record.target = request.target;
  return record;
}

// A record must not expire while its owner may be at work: it stays at least as long as the lease.
void stay_for_the_lease(Record& record) { record.expires_at = std::max(record.expires_at, record.lease_until); }

} // namespace

bool claim_changes(const std::optional<Record>& found, const ClaimRequest& request, Time now, OwnerWorksHere owner) {
  if (is_free(found, now)) return true;
  if (found->fingerprint != request.fingerprint) return false;
  if (owner == OwnerWorksHere::yes) return found->abandoned(now);
  return may_take_over(*found, request, now);
}

ClaimStep claim_step(const std::optional<Record>& found, const ClaimRequest& request, std::uint64_t fence, Time now,
                     OwnerWorksHere owner) {
  if (!claim_changes(found, request, now, owner)) return {std::nullopt, Found{*found, now}};
  if (is_free(found, now)) {
    Record record = fresh_record(request, fence, now);
    stay_for_the_lease(record);
    const Claimed answer{record.fence, /*took_over=*/false, now};
    return {std::move(record), answer};
  }
  Record record = *found;
  record.lease_until = now + request.lease;
  stay_for_the_lease(record);
  if (owner == OwnerWorksHere::yes) return {record, Found{record, now}};
  record.fence = fence;
  record.took_over = true;
  record.settled_at = now;
  record.rerun = false;
  record.claimed_by = request.token;
  record.context = request.context;
  const Claimed answer{record.fence, /*took_over=*/true, now};
  return {std::move(record), answer};
}

OwnerWorksHere works_here(const Store::OwnersHere& owners, const RecordId& id, const std::optional<Record>& found,
                          Time now) {
  if (!owners || !found || !found->abandoned(now)) return OwnerWorksHere::no;
  return owners(id) == found->fence ? OwnerWorksHere::yes : OwnerWorksHere::no;
}

FenceStep renew_step(const std::optional<Record>& found, std::uint64_t fence, Millis lease, Time now) {
  if (!owns(found, fence, now)) return {};
  Record record = *found;
  record.lease_until = now + lease;
  stay_for_the_lease(record);
  return {std::move(record), false, FenceAnswer::done};
}

FenceStep complete_step(const std::optional<Record>& found, std::uint64_t fence, StoredResponse response, Time now) {
  if (is_free(found, now) || found->fence != fence) return {};
  const bool streaming = found->state == RecordState::completed && found->response && found->response->unfinished();
  // A finder held the record because its lease was over, but the owner was alive and has the answer: it is kept.
  const bool held = found->state == RecordState::indeterminate;
  if (!streaming && !held && !owns(found, fence, now)) return {};
  Record record = *found;
  if (!streaming) record.settled_at = now;
  record.state = RecordState::completed;
  record.rerun = false;
  record.response = std::move(response);
  return {std::move(record), false, FenceAnswer::done};
}

FenceStep release_step(const std::optional<Record>& found, std::uint64_t fence, Time now) {
  if (!owns(found, fence, now)) return {};
  if (!found->took_over) return {std::nullopt, true, FenceAnswer::done};
  Record record = *found;
  record.lease_until = now;
  return {std::move(record), false, FenceAnswer::done};
}

FenceStep hold_step(const std::optional<Record>& found, std::uint64_t fence, Holder by, Time now) {
  if (!owns(found, fence, now)) return {};
  // Since it was found abandoned, the owner may have renewed, or an operator may have allowed another run.
  if (by == Holder::finder && (!found->lease_over(now) || found->rerun)) return {};
  Record record = *found;
  record.state = RecordState::indeterminate;
  record.settled_at = now;
  return {std::move(record), false, FenceAnswer::done};
}

FenceStep fence_step(const std::optional<Record>& found, FenceCall& call, Time now) {
  switch (call.verb) {
    case FenceVerb::renew:
      return renew_step(found, call.owner.fence, call.lease, now);
    case FenceVerb::complete:
      return complete_step(found, call.owner.fence, std::move(call.response), now);
    case FenceVerb::release:
      return release_step(found, call.owner.fence, now);
    case FenceVerb::hold:
      return hold_step(found, call.owner.fence, Holder::owner, now);
    case FenceVerb::hold_found:
      return hold_step(found, call.owner.fence, Holder::finder, now);
  }
  return {};
}

bool is_kept_from(const FenceCall& call, const Store::OwnersHere& owners) {
  return call.verb == FenceVerb::hold_found && owners && owners(call.owner.id) == call.owner.fence;
}

OperatorStep operate_step(const std::optional<Record>& found, OperatorAction action, StoredResponse response,
                          Time now) {
  if (is_free(found, now)) return {std::nullopt, false, OperatorAnswer::absent};
  if (found->state == RecordState::completed) return {std::nullopt, false, OperatorAnswer::completed};
  if (found->state == RecordState::in_progress && !found->lease_over(now))
    return {std::nullopt, false, OperatorAnswer::live};
  Record record = *found;
  switch (action) {
    case OperatorAction::release:
      return {std::nullopt, true, OperatorAnswer::done};
    case OperatorAction::complete:
      record.state = RecordState::completed;
      record.settled_at = now;
      record.rerun = false;
      record.response = std::move(response);
      break;
    case OperatorAction::rerun:
      // Abandoned with permission: the next retry with the same fingerprint takes over, with the next fence.
      record.state = RecordState::in_progress;
      record.lease_until = now;
      record.rerun = true;
      break;
    case OperatorAction::hold:
      if (record.state == RecordState::indeterminate) return {std::nullopt, false, OperatorAnswer::done};
      record.state = RecordState::indeterminate;
      record.settled_at = now;
      record.rerun = false;
      break;
  }
  return {std::move(record), false, OperatorAnswer::done};
}

} // namespace oncekey
