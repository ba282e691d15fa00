#include "store/redis/store_state.h"

#include <algorithm>

namespace oncekey::redis {

void ServerClock::learn(Time server_now) {
  const Deadline here = Clock::now();
  const Millis difference = server_now.time_since_epoch() - std::chrono::floor<Millis>(here.time_since_epoch());
  const std::lock_guard lock(mutex_);
  if (here >= stretch_ends_) {
    const bool first = stretch_ends_ == Deadline{};
    last_difference_ = first ? difference : difference_;
    difference_ = difference;
    stretch_ends_ = here + kStretch;
  }
  difference_ = std::max(difference_, difference);
}

Time ServerClock::now() const {
  const Millis here = std::chrono::floor<Millis>(Clock::now().time_since_epoch());
  const std::lock_guard lock(mutex_);
  return Time{here + std::max(difference_, last_difference_)};
}

Status StoreState::may_claim() const {
  if (Status remembered = memory.memory(); !remembered) return remembered;
  if (!troubled_.load()) return ok_status();
  const std::lock_guard lock(mutex_);
  if (another_store_) return *another_store_;
  if (evicting_) return *evicting_;
  return ok_status();
}

void StoreState::examined(const Host& host, const Examination& found) {
  const std::lock_guard lock(mutex_);
  examinations_[host] = found;
  sum_up();
}

void StoreState::keep_only(const std::vector<Host>& hosts) {
  const std::lock_guard lock(mutex_);
  std::erase_if(examinations_,
                [&](const auto& entry) { return std::find(hosts.begin(), hosts.end(), entry.first) == hosts.end(); });
  sum_up();
}

void StoreState::sum_up() {
  evicting_.reset();
  const Examination* lowest = nullptr;
  for (const auto& [host, found] : examinations_) {
    if (found.evicting && !evicting_) evicting_ = found.evicting;
    if (lowest == nullptr || found.durability < lowest->durability) lowest = &found;
  }
  if (lowest != nullptr) {
    durability_ = lowest->durability;
    durability_reason_ = lowest->why;
  }
  troubled_ = evicting_ || another_store_;
}

void StoreState::store_is_another(std::optional<Fault> fault) {
  const std::lock_guard lock(mutex_);
  another_store_ = std::move(fault);
  troubled_ = evicting_ || another_store_;
}

void StoreState::reachable(const Status& status) {
  const std::lock_guard lock(mutex_);
  unreachable_.reset();
  if (!status) unreachable_ = status.fault();
}

Status StoreState::healthy() const {
  if (Status claims = may_claim(); !claims) return claims;
  const std::lock_guard lock(mutex_);
  if (unreachable_) return *unreachable_;
  return ok_status();
}

std::string StoreState::durability_reason() const {
  const std::lock_guard lock(mutex_);
  return durability_reason_;
}

StoreStats StoreState::stats() const {
  StoreStats stats;
  const std::lock_guard lock(mutex_);
  for (const auto& [host, found] : examinations_) {
    stats.records_estimate += found.keys;
    stats.bytes_in_memory += found.bytes_in_memory;
    stats.bytes_on_disk += found.bytes_on_disk;
  }
  stats.syncs = batches.load();
  stats.writes = calls.load();
  return stats;
}

} // namespace oncekey::redis
