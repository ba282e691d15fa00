// GivenUp: claims of this process whose owner has stopped while their lease runs on.
//
// A call that ended with an unknown outcome is left to its lease (Settlement::abandon), and so is a key that the store
// did not let settle. Until the lease is over, a retry and an operator are told what happened instead of "still at
// work". What is forgotten here costs a less exact text and nothing else: the record decides.
#pragma once

#include "net/loop.h"

#include "core/store.h"

#include <atomic>
#include <cstddef>
#include <mutex>
#include <unordered_map>

namespace oncekey {

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
