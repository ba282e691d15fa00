// LiveCalls: the operations this process owns and is at work on. GivenUp: those it has stopped to work on.
//
// A process that is paused for longer than a lease (SIGSTOP, a suspended or migrated machine) finds its own leases over
// when it goes on, beside the retries that came meanwhile. The owners are alive: they are in this list. The store asks
// it before a claim takes an abandoned record over (Store::owners_here), and the first claim or timer that notices the
// pause renews every lease that is due, before anything else is asked of the store.
#pragma once

#include "core/store.h"
#include "gateway/sharded.h"
#include "net/loop.h"

#include <unordered_map>

namespace oncekey {

// Loops look at the clock this often, and take a longer gap for a pause: well below the shortest useful lease, and
// above what a busy loop is late by.
inline constexpr Millis kPulse{100};
inline constexpr Millis kPause{500};

// Safe to use from several threads.
class LiveCalls {
 public:
  LiveCalls();

  // An operation at work. Lives from add() to remove(). All but the first three is guarded by the list; moments are
  // milliseconds since boot.
  struct Call {
    Ownership owner;
    Millis lease{};
    Time claimed_at{}; // on the store's clock
    Millis added_at{};
    Millis renewed_at{};
    std::uint32_t renewals = 0;
    std::optional<Millis> forwarded_at{};
  };
  void add(Call& call);
  void remove(const Call& call);
  void renewed(Call& call);
  void forwarded(Call& call); // the call to the upstream begins
  Course course_of(const Call& call) const;

  // The fence of the call at work on a record, if there is one.
  std::optional<std::uint64_t> fence_of(const RecordId& id) const;

  // How far the call with this fence has come, if it is at work here.
  std::optional<Course> course_of(const RecordId& id, std::uint64_t fence) const;

  // A call whose lease was not renewed in time, as seen now.
  struct LateLease {
    RecordId id;
    Millis lease{};
    Millis left{}; // negative when it is over
  };
  // Those with less than a quarter of their lease left, soonest first. Leases are renewed after a third of them.
  std::vector<LateLease> late_leases(std::size_t limit) const;

  // Called about every kPulse by each loop, and before each claim. Costs a look at the clock when there was no pause.
  void renew_after_a_pause(Store& store);

 private:
  struct Due {
    Ownership owner;
    Millis lease;
  };
  std::vector<Due> take_due(Millis now);

  Sharded<std::unordered_map<RecordId, Call*>, 64> calls_;
  std::atomic<std::int64_t> looked_at_; // milliseconds since boot
};

// Claims of this process whose owner has stopped while their lease runs on.
//
// A call that ended with an unknown outcome is left to its lease (Settlement::abandon), and so is a key that the store
// did not let settle. Until the lease is over, a retry and an operator are told what happened instead of "still at
// work". What is forgotten here costs a less exact text and nothing else: the record decides.
//
// Safe to use from several threads.
class GivenUp {
 public:
  // More than an upstream that fails brings up within a lease. Beyond it the newest are not remembered.
  static constexpr std::size_t kMost = 1u << 16;

  void add(const Ownership& owner, Millis lease, MonotonicTime now);
  bool has(const Ownership& owner, MonotonicTime now) const;

 private:
  struct Entry {
    std::uint64_t fence;
    MonotonicTime until; // the lease is over at the latest then
  };
  void drop_ended(MonotonicTime now);

  std::atomic<bool> ever_{false}; // nothing has been added yet: no lock is taken
  mutable std::mutex mutex_;
  std::unordered_map<RecordId, Entry> entries_;
  MonotonicTime swept_{};
};

} // namespace oncekey
