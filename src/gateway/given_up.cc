#include "gateway/given_up.h"

namespace oncekey {
namespace {

// A full list is looked through no more often than this.
constexpr std::chrono::seconds kSweepEvery{1};

} // namespace

void GivenUp::add(const Ownership& owner, Millis lease, MonotonicTime now) {
  const std::lock_guard lock(mutex_);
  if (entries_.size() >= kMost) drop_ended(now);
  if (entries_.size() >= kMost) return;
  entries_.insert_or_assign(owner.id, Entry{owner.fence, now + lease});
}

bool GivenUp::has(const Ownership& owner, MonotonicTime now) const {
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
