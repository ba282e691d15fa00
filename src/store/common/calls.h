// calls: what a caller wants of a store, as a value that waits until a batch takes it.
#pragma once

#include "core/job_store.h"
#include "core/store.h"

#include <atomic>

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
  std::optional<JobSeen> seen;
  Done<JobAnswer> done;
};

using AnyCall = std::variant<ClaimCall, FindCall, FenceCall, OperatorCall, StageCall, TakeCall, AttemptCall,
                             FindJobCall, JobOperatorCall>;

enum class CallKind { begins_work, other };

// QueueLimits: how many calls may wait for a store, and how many bytes of bodies.
//
// New work (a claim, a job to stage or to take) is refused first. An owner that wants to write its answer is refused
// only at four times the limit: a refusal would turn done work into unknown work. Owners are as many as there were
// claims, so the wider limit still is one. A call without a body is not refused for bytes.
struct QueueLimits {
  // At fifty thousand a second this is more than a second's work, longer than a client should be kept waiting.
  std::size_t calls_max = 65536;
  std::size_t bytes_max = std::size_t{256} << 20;

  bool are_reached(CallKind kind, std::size_t body_bytes, std::size_t calls, std::size_t bytes) const {
    if (kind == CallKind::begins_work) return calls >= calls_max || bytes >= bytes_max;
    return calls >= 4 * calls_max || (body_bytes > 0 && bytes >= 4 * bytes_max);
  }
};

inline Fault overloaded() {
  return unavailable("the store is overloaded: too many calls wait for it; try again later");
}

// Counts the calls that a store has not answered yet. Safe to use from several threads.
class QueueRoom {
 public:
  explicit QueueRoom(QueueLimits limits = {}) : limits_(limits) {}

  // The room that one call takes, until the place is destroyed. The QueueRoom outlives it.
  struct GiveBack {
    std::size_t bytes = 0;
    void operator()(QueueRoom* room) const {
      room->calls_.fetch_sub(1, std::memory_order_relaxed);
      room->bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    }
  };
  using Place = std::unique_ptr<QueueRoom, GiveBack>;

  // Nothing when the limits are reached. Threads that ask at the same time may pass them by one call each.
  std::optional<Place> admit(CallKind kind, std::size_t body_bytes) {
    if (limits_.are_reached(kind, body_bytes, calls_.load(std::memory_order_relaxed),
                            bytes_.load(std::memory_order_relaxed))) {
      return std::nullopt;
    }
    calls_.fetch_add(1, std::memory_order_relaxed);
    bytes_.fetch_add(body_bytes, std::memory_order_relaxed);
    return Place(this, GiveBack{body_bytes});
  }

 private:
  const QueueLimits limits_;
  std::atomic<std::size_t> calls_ = 0;
  std::atomic<std::size_t> bytes_ = 0;
};

// For a variant of these, or of types derived from them.
template <class... Calls>
std::size_t body_bytes(const std::variant<Calls...>& call) {
  return std::visit(
      [](const auto& each) -> std::size_t {
        if constexpr (requires { each.response.body; }) return each.response.bytes();
        if constexpr (requires { each.request.message.body; }) return each.request.message.bytes();
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
