#include "gateway/live_calls.h"

#include <algorithm>
#include <ctime>

namespace oncekey {
namespace {

// Counts while the machine is suspended, as the stores' clocks do.
Millis since_boot() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return Millis{now.tv_sec * 1000 + now.tv_nsec / 1'000'000};
}

// Counted on from the claim, so that all times of a key are on the store's clock.
Course as_course(const LiveCalls::Call& call) {
  const auto on_store_clock = [&](Millis moment) { return call.claimed_at + (moment - call.added_at); };
  return {.claimed_at = call.claimed_at,
          .forwarded_at = call.forwarded_at ? on_store_clock(*call.forwarded_at) : Time{},
          .renewals = call.renewals,
          .renewed_at = on_store_clock(call.renewed_at)};
}

// The list is looked through for leases that are over no more often than this.
constexpr std::chrono::seconds kSweepEvery{1};

} // namespace

LiveCalls::LiveCalls() : looked_at_(since_boot().count()) {}

void LiveCalls::add(Call& call) {
  call.added_at = call.renewed_at = since_boot();
  // An earlier call of the same key has lost its lease: the newest counts.
  calls_.of(call.owner.id)->insert_or_assign(call.owner.id, &call);
}

void LiveCalls::remove(const Call& call) {
  const auto calls = calls_.of(call.owner.id);
  const auto found = calls->find(call.owner.id);
  if (found != calls->end() && found->second == &call) calls->erase(found);
}

void LiveCalls::renewed(Call& call) {
  const auto locked = calls_.of(call.owner.id);
  call.renewed_at = since_boot();
  ++call.renewals;
}

void LiveCalls::forwarded(Call& call) {
  const auto locked = calls_.of(call.owner.id);
  call.forwarded_at = since_boot();
}

Course LiveCalls::course_of(const Call& call) const {
  const auto locked = calls_.of(call.owner.id);
  return as_course(call);
}

std::optional<Course> LiveCalls::course_of(const RecordId& id, std::uint64_t fence) const {
  const auto calls = calls_.of(id);
  const auto found = calls->find(id);
  if (found == calls->end() || found->second->owner.fence != fence) return std::nullopt;
  return as_course(*found->second);
}

std::optional<std::uint64_t> LiveCalls::fence_of(const RecordId& id) const {
  const auto calls = calls_.of(id);
  const auto found = calls->find(id);
  if (found == calls->end()) return std::nullopt;
  return found->second->owner.fence;
}

std::vector<LiveCalls::LateLease> LiveCalls::late_leases(std::size_t limit) const {
  const Millis now = since_boot();
  std::vector<LateLease> late;
  calls_.each([&](const auto& calls) {
    for (const auto& [id, call] : calls) {
      const Millis left = call->renewed_at + call->lease - now;
      if (left < call->lease / 4) late.push_back({id, call->lease, left});
    }
  });
  std::sort(late.begin(), late.end(), [](const LateLease& a, const LateLease& b) { return a.left < b.left; });
  if (late.size() > limit) late.resize(limit);
  return late;
}

std::vector<LiveCalls::Due> LiveCalls::take_due(Millis now) {
  std::vector<Due> due;
  calls_.each([&](const auto& calls) {
    for (const auto& [id, call] : calls) {
      if (now - call->renewed_at < call->lease / 3) continue;
      call->renewed_at = now;
      ++call->renewals;
      due.push_back({call->owner, call->lease});
    }
  });
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
