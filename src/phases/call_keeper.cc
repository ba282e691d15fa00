#include "phases/call_keeper.h"

#include "phases/operation_rows.h"

#include <algorithm>

namespace oncekey::phases {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

SteadyTime steady_now() { return std::chrono::steady_clock::now(); }

} // namespace

CallKeeper::CallKeeper(Engine& engine, Millis lease, Millis call_max)
    : engine_(engine), lease_(lease), call_max_(call_max) {}

CallKeeper::~CallKeeper() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

CallKeeper::Watch::Watch(CallKeeper& keeper, const RecordId& id, std::int64_t fence)
    : keeper_(keeper),
      id_(id),
      fence_(fence),
      renew_at_(steady_now() + keeper.lease_ / 3),
      stop_at_(steady_now() + keeper.call_max_) {
  const std::lock_guard lock(keeper.mutex_);
  // The thread is started first, because that may throw: a watch that was never made must not stay in the list.
  if (!keeper.thread_.joinable()) keeper.thread_ = std::thread([&keeper] { keeper.work(); });
  place_ = keeper.watches_.insert(keeper.watches_.end(), this);
  // A thread that is not idle wakes within a third of a lease by itself: before this call's renewal is due.
  if (keeper.idle_) keeper.changed_.notify_all();
}

CallKeeper::Watch::~Watch() {
  const std::lock_guard lock(keeper_.mutex_);
  keeper_.watches_.erase(place_);
}

void CallKeeper::renew(const RecordId& id, std::int64_t fence) {
  auto session = engine_.session();
  if (!session.ok()) return; // tried again at the next third; two of them fit into a lease
  (void)(*session)->transact_one(renew_lease(id, fence, lease_)).ok();
}

void CallKeeper::work() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (watches_.empty()) {
      idle_ = true;
      changed_.wait(lock);
      idle_ = false;
      continue;
    }
    SteadyTime earliest = SteadyTime::max();
    std::vector<std::pair<RecordId, std::int64_t>> due;
    const SteadyTime now = steady_now();
    for (Watch* const watch : watches_) {
      if (now >= watch->stop_at_) continue;
      if (now >= watch->renew_at_) {
        due.emplace_back(watch->id_, watch->fence_);
        watch->renew_at_ = now + lease_ / 3;
      }
      earliest = std::min(earliest, watch->renew_at_);
    }
    if (due.empty()) {
      changed_.wait_until(lock, std::min(earliest, now + lease_ / 3));
      continue;
    }
    // Without the lock: calls must be able to begin and end while the database takes its time. A renewal that comes
    // after its call has ended renews the lease of the same owner, or nothing if the fence is old.
    lock.unlock();
    for (const auto& [id, fence] : due) {
      if (stopping_) break; // a database that hangs would hold up the end by one time-out for each call
      renew(id, fence);
    }
    lock.lock();
  }
}

} // namespace oncekey::phases
