// calls: what a caller wants of a store, as a value that waits until a batch takes it.
#pragma once

#include "core/job_store.h"
#include "core/store.h"
#include "store/common/queue_limits.h"

#include <cstdint>
#include <variant>
#include <vector>

namespace oncekey {

struct ClaimCall {
  ClaimRequest request;
  Done<ClaimAnswer> done;
};

struct FindCall {
  RecordId id;
  Interest interest = Interest::none;
  Done<std::optional<Found>> done;
};

// What an owner may want. The numbers are those of oncekey.settle() in Postgres.
enum class FenceVerb : std::int16_t { renew = 1, complete = 2, release = 3, hold = 4, hold_found = 5 };

struct FenceCall {
  FenceVerb verb = FenceVerb::renew;
  Ownership owner;
  Millis lease{};          // renew
  StoredResponse response; // complete
  Done<FenceAnswer> done;
};

struct OperatorCall {
  RecordId id;
  OperatorAction action = OperatorAction::release;
  StoredResponse response; // complete
  Done<OperatorAnswer> done;
};

// Of a JobStore.
struct StageCall {
  StageRequest request;
  Done<StageAnswer> done;
};

struct TakeCall {
  TakeRequest request;
  Done<std::vector<TakenJob>> done;
};

struct AttemptCall {
  Ownership owner;
  AttemptEnd end;
  Done<FenceAnswer> done;
};

struct FindJobCall {
  RecordId id;
  Done<std::optional<FoundJob>> done;
};

struct JobOperatorCall {
  RecordId id;
  JobAction action = JobAction::retry;
  Done<JobAnswer> done;
};

using AnyCall = std::variant<ClaimCall, FindCall, FenceCall, OperatorCall, StageCall, TakeCall, AttemptCall,
                             FindJobCall, JobOperatorCall>;

// For a variant of these, or of types derived from them.
template <class... Calls>
std::size_t body_bytes(const std::variant<Calls...>& call) {
  return std::visit(
      [](const auto& each) -> std::size_t {
        if constexpr (requires { each.response.body; }) return each.response.body.size();
        if constexpr (requires { each.request.message.body; }) return each.request.message.body.size();
        if constexpr (requires { each.message_bytes; }) return each.message_bytes;
        return 0;
      },
      call);
}
template <class... Calls>
CallKind kind_of(const std::variant<Calls...>& call) {
  // Claims, and jobs to stage or to take: they have a request.
  const bool begins = std::visit(
      [](const auto& each) {
        return requires { each.request; };
      },
      call);
  return begins ? CallKind::begins_work : CallKind::other;
}
template <class... Calls>
void refuse(std::variant<Calls...>& call, const Fault& fault) {
  std::visit([&](auto& refused) { refused.done(fault); }, call);
}

// Can one answer serve both? Claims of one id share what the first one finds; finds share with the same interest.
inline bool may_share(const AnyCall& first, const AnyCall& next) {
  if (std::holds_alternative<ClaimCall>(first)) return std::holds_alternative<ClaimCall>(next);
  const auto* const find = std::get_if<FindCall>(&first);
  const auto* const other = std::get_if<FindCall>(&next);
  return find != nullptr && other != nullptr && find->interest == other->interest;
}

} // namespace oncekey
