// BrokenOff: the runs of this runner that a failing database ended, and whose leases are still live.
//
// A database that fails for a moment leaves every key in flight with a live lease and no run at work on it. Other
// processes must wait for the end of the lease; this one knows that its run has ended. It remembers the fence of such a
// run. The next run of the same key goes on at once if the row still has that fence, or the next number: a last commit
// whose answer was lost gives it that. Of a claim whose answer was lost, the identity is remembered. Going on takes a
// new fence, so that a mistake here costs a wait and never a second owner.
#pragma once

#include "phases/operation_rows.h"

#include <oncekey/record.h>

#include <chrono>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace oncekey::phases {

class BrokenOff {
 public:
  explicit BrokenOff(Millis lease) : lease_(lease) {}

  void remember(const RecordId& id, std::int64_t fence) { keep(id, {fence, {}, {}}); }
  void remember_claim(const RecordId& id, const std::string& identity) { keep(id, {0, identity, {}}); }

  // Whether the row belongs to such a run. True once for each run: the caller then goes on with it.
  bool take(const OperationRow& row) {
    const std::lock_guard lock(mutex_);
    const auto found = runs_.find(row.id);
    if (found == runs_.end()) return false;
    const Run run = std::move(found->second);
    runs_.erase(found);
    if (std::chrono::steady_clock::now() >= run.until) return false;
    // The row has the fence of its first claim: no other run has taken it over since.
    if (!run.identity.empty()) {
      return row.identity == run.identity && row.fence == row.first_received.time_since_epoch().count();
    }
    return row.fence == run.fence || row.fence == run.fence + 1;
  }

 private:
  struct Run {
    std::int64_t fence;
    std::string identity; // of a claim
    std::chrono::steady_clock::time_point until;
  };

  void keep(const RecordId& id, Run run) {
    const auto now = std::chrono::steady_clock::now();
    const std::lock_guard lock(mutex_);
    if (runs_.size() >= kRunsMax) {
      std::erase_if(runs_, [&](const auto& old) { return old.second.until <= now; });
      if (runs_.size() >= kRunsMax) return; // the lease runs out by itself
    }
    run.until = now + lease_;
    runs_.insert_or_assign(id, std::move(run));
  }

  // More than a process has threads for. The bound keeps a long outage from using up memory.
  static constexpr std::size_t kRunsMax = 10'000;

  const Millis lease_;
  std::mutex mutex_;
  std::unordered_map<RecordId, Run> runs_;
};

} // namespace oncekey::phases
