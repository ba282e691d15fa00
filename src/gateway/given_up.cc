#include "gateway/given_up.h"

namespace oncekey {
namespace {

// The list is looked through for leases that are over no more often than this.
constexpr std::chrono::seconds kSweepEvery{1};

} // namespace

void GivenUp::add(const Ownership& owner, Millis lease, MonotonicTime now) {
  const std::lock_guard lock(mutex_);
  drop_ended(now);
  if (entries_.size() >= kMost) return;
  entries_.insert_or_assign(owner.id, Entry{owner.fence, now + lease});
  ever_.store(true, std::memory_order_release);
}

bool GivenUp::has(const Ownership& owner, MonotonicTime now) const {
  if (!ever_.load(std::memory_order_acquire)) return false;
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(owner.id);
  return found != entries_.end() && found->second.fence == owner.fence && now < found->second.until;
}

void GivenUp::drop_ended(MonotonicTime now) {
  if (now - swept_ < kSweepEvery) return;
  swept_ = now;
  std::erase_if(entries_, [now](const auto& entry) { return now >= entry.second.until; });
}

} // namespace oncekey
