// calls: what a caller wants of a store, as a value that waits until a batch takes it.
#pragma once

#include "core/store.h"
#include "store/common/queue_limits.h"

#include <cstdint>
#include <type_traits>
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

struct TakeCall {
  TakeRequest request;
  Done<std::vector<TakenJob>> done;
};

struct AttemptCall {
  Ownership owner;
  AttemptEnd end;
  Done<FenceAnswer> done;
};

using StoreCall = std::variant<ClaimCall, FindCall, FenceCall, OperatorCall, TakeCall, AttemptCall>;

inline const RecordId& id_of(const ClaimCall& call) { return call.request.id; }
inline const RecordId& id_of(const FindCall& call) { return call.id; }
inline const RecordId& id_of(const FenceCall& call) { return call.owner.id; }
inline const RecordId& id_of(const OperatorCall& call) { return call.id; }
inline const RecordId& id_of(const AttemptCall& call) { return call.owner.id; }

inline std::size_t body_bytes(const ClaimCall& call) {
  return call.request.staged ? call.request.staged->message.body.size() : 0;
}
inline std::size_t body_bytes(const FenceCall& call) { return call.response.body.size(); }
inline std::size_t body_bytes(const OperatorCall& call) { return call.response.body.size(); }
inline std::size_t body_bytes(const AttemptCall& call) { return call.end.message.body.size(); }
inline std::size_t body_bytes(const FindCall&) { return 0; }
inline std::size_t body_bytes(const TakeCall&) { return 0; }

// The same for a variant of these, or of types derived from them.
template <class... Calls>
std::size_t body_bytes(const std::variant<Calls...>& call) {
  return std::visit([](const auto& each) { return body_bytes(each); }, call);
}
template <class... Calls>
CallKind kind_of(const std::variant<Calls...>& call) {
  return std::visit(
      []<class Each>(const Each&) {
        const bool begins = std::is_base_of_v<ClaimCall, Each> || std::is_base_of_v<TakeCall, Each>;
        return begins ? CallKind::begins_work : CallKind::other;
      },
      call);
}
template <class... Calls>
void refuse(std::variant<Calls...>& call, const Fault& fault) {
  std::visit([&](auto& refused) { refused.done(fault); }, call);
}

// Can one answer serve both? Claims of one id share what the first one finds; finds share with the same interest.
inline bool may_share(const StoreCall& first, const StoreCall& next) {
  if (std::holds_alternative<ClaimCall>(first)) return std::holds_alternative<ClaimCall>(next);
  const auto* const find = std::get_if<FindCall>(&first);
  const auto* const other = std::get_if<FindCall>(&next);
  return find != nullptr && other != nullptr && find->interest == other->interest;
}

} // namespace oncekey
