#include "gateway/live_calls.h"

#include <ctime>

namespace oncekey {
namespace {

// Counts while the machine is suspended, as the stores' clocks do.
Millis since_boot() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return Millis{now.tv_sec * 1000 + now.tv_nsec / 1'000'000};
}

} // namespace

LiveCalls::LiveCalls() : looked_at_(since_boot().count()) {}

void LiveCalls::add(Call& call) {
  call.renewed_at = since_boot();
  Shard& shard = shard_of(call.owner.id);
  const std::lock_guard lock(shard.mutex);
  // An earlier call of the same key has lost its lease: the newest counts.
  shard.calls.insert_or_assign(call.owner.id, &call);
}

void LiveCalls::remove(const Call& call) {
  Shard& shard = shard_of(call.owner.id);
  const std::lock_guard lock(shard.mutex);
  const auto found = shard.calls.find(call.owner.id);
  if (found != shard.calls.end() && found->second == &call) shard.calls.erase(found);
}

void LiveCalls::renewed(Call& call) {
  const std::lock_guard lock(shard_of(call.owner.id).mutex);
  call.renewed_at = since_boot();
}

std::optional<std::uint64_t> LiveCalls::fence_of(const RecordId& id) const {
  const Shard& shard = shard_of(id);
  const std::lock_guard lock(shard.mutex);
  const auto found = shard.calls.find(id);
  if (found == shard.calls.end()) return std::nullopt;
  return found->second->owner.fence;
}

std::vector<LiveCalls::Due> LiveCalls::take_due(Millis now) {
  std::vector<Due> due;
  for (Shard& shard : shards_) {
    const std::lock_guard lock(shard.mutex);
    for (const auto& [id, call] : shard.calls) {
      if (now - call->renewed_at < call->lease / 3) continue;
      call->renewed_at = now;
      due.push_back({call->owner, call->lease});
    }
  }
  return due;
}

void LiveCalls::renew_after_a_pause(Store& store) {
  const Millis now = since_boot();
  // Written seldom, so that threads do not contend for it with every claim.
  if (now - Millis{looked_at_.load(std::memory_order_relaxed)} < kPulse / 2) return;
  const Millis before{looked_at_.exchange(now.count(), std::memory_order_relaxed)};
  if (now - before < kPause) return;
  // Outside of the locks: a store asks for owners under locks of its own.
  for (const Due& due : take_due(now)) store.renew(due.owner, due.lease, [](const Result<FenceAnswer>&) {});
}

} // namespace oncekey
