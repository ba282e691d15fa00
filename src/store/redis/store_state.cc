#include "store/redis/store_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace oncekey::redis {
namespace {

// Where no marker is, so that this loss is told apart from theirs.
constexpr std::size_t kEvictedPlace = std::numeric_limits<std::size_t>::max();

} // namespace

Status StoreState::remembers() const {
  Status remembered = marker.memory.memory();
  if (remembered) return remembered;
  const std::lock_guard lock(mutex_);
  if (evicted_ && evicted_->generation == marker.memory.generation()) return evicted_->fault;
  return remembered;
}

Status StoreState::may_claim() const {
  if (Status may = marker.may_claim(); !may) return marker.memory.memory() ? may : remembers();
  if (!is_evicting_.load()) return ok_status();
  const std::lock_guard lock(mutex_);
  if (evicting_) return *evicting_;
  return ok_status();
}

void StoreState::examined(const Host& host, const Examination& found) {
  const std::string generation = marker.memory.generation();
  const std::lock_guard lock(mutex_);
  const auto before = examinations_.find(host);
  if (before != examinations_.end() && !generation.empty()) {
    // What was evicted before an operator accepted the loss is accepted as well.
    const bool accepted = !before->second.generation.empty() && before->second.generation != generation;
    const std::uint64_t keys = evicted_between(before->second.found, found);
    if (keys > 0 && !accepted) note_evicted(host, keys, generation);
  }
  examinations_[host] = {found, generation};
  sum_up();
}

void StoreState::note_evicted(const Host& host, std::uint64_t keys, const std::string& generation) {
  if (evicted_ && evicted_->generation == generation) return; // the first sight tells most
  const Fault fault{
      FaultKind::conflict,
      fmt::format("the store has lost its memory: Redis at {} has evicted {} keys to make room, as its "
                  "maxmemory-policy let it. Retries of requests it has forgotten would be executed again, so none is "
                  "executed. Set maxmemory-policy noeviction, find out what was lost, then say so with: oncekey store "
                  "accept-loss --store URL",
                  to_string(host), keys)};
  evicted_ = Evicted{generation, fault};
  const Status lost = marker.memory.see(kEvictedPlace, Marker{generation, "", 0, true});
  ONCEKEY_CHECK(!lost, "a loss was seen and not believed");
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
  for (const auto& [host, examined] : examinations_) {
    if (examined.found.evicting && !evicting_) evicting_ = examined.found.evicting;
    if (lowest == nullptr || examined.found.durability < lowest->durability) lowest = &examined.found;
  }
  if (lowest != nullptr) {
    durability_ = lowest->durability;
    durability_reason_ = lowest->why;
  }
  is_evicting_ = evicting_.has_value();
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
  for (const auto& [host, examined] : examinations_) {
    stats.records_estimate += examined.found.keys;
    stats.bytes_in_memory += examined.found.bytes_in_memory;
    stats.bytes_on_disk += examined.found.bytes_on_disk;
  }
  stats.syncs = batches.load();
  stats.writes = calls.load();
  return stats;
}

} // namespace oncekey::redis
