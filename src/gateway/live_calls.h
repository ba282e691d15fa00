// LiveCalls: the operations this process owns and is at work on.
//
// A process that is paused for longer than a lease (SIGSTOP, a suspended or migrated machine) finds its own leases over
// when it goes on, beside the retries that came meanwhile. The owners are alive: they are in this list. The store asks
// it before a claim takes an abandoned record over (Store::owners_here), and the first claim or timer that notices the
// pause renews every lease that is due, before anything else is asked of the store.
#pragma once

#include "core/store.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

namespace oncekey {

// Loops look at the clock this often, and take a longer gap for a pause: well below the shortest useful lease, and
// above what a busy loop is late by.
inline constexpr Millis kPulse{100};
inline constexpr Millis kPause{500};

// Safe to use from several threads.
class LiveCalls {
 public:
  LiveCalls();

  // An operation at work. Lives from add() to remove().
  struct Call {
    Ownership owner;
    Millis lease{};
    Millis renewed_at{}; // since boot; guarded by the list
  };
  void add(Call& call);
  void remove(const Call& call);
  void renewed(Call& call);

  // The fence of the call at work on a record, if there is one.
  std::optional<std::uint64_t> fence_of(const RecordId& id) const;

  // Called about every kPulse by each loop, and before each claim. Costs a look at the clock when there was no pause.
  void renew_after_a_pause(Store& store);

 private:
  struct Shard {
    mutable std::mutex mutex;
    std::unordered_map<RecordId, Call*> calls;
  };
  struct Due {
    Ownership owner;
    Millis lease;
  };
  const Shard& shard_of(const RecordId& id) const { return shards_[id.bytes[31] % shards_.size()]; }
  Shard& shard_of(const RecordId& id) { return shards_[id.bytes[31] % shards_.size()]; }
  std::vector<Due> take_due(Millis now);

  // Enough that threads rarely meet on one lock.
  std::array<Shard, 64> shards_;
  std::atomic<std::int64_t> looked_at_; // milliseconds since boot
};

} // namespace oncekey
