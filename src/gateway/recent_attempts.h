// RecentAttempts: how the newest attempts to deliver jobs ended, for the console. A job itself keeps only the last one.
//
// Of this gateway since its start, in a fixed amount of memory. Safe to use from several threads.
#pragma once

#include "core/job.h"

#include <deque>
#include <mutex>
#include <optional>
#include <vector>

namespace oncekey {

class RecentAttempts {
 public:
  // Enough for every attempt of a hundred jobs over their budget.
  static constexpr std::size_t kMost = 4096;

  struct Attempt {
    RecordId job;
    Time at{};
    std::uint32_t number = 0; // from one on
    AttemptResult result;
    std::string ending;         // delivered, again or dead
    std::optional<Time> next{}; // of one that is tried again
  };

  void add(Attempt attempt) {
    const std::lock_guard lock(mutex_);
    if (attempts_.size() == kMost) attempts_.pop_front();
    attempts_.push_back(std::move(attempt));
  }

  // Of one job, oldest first.
  std::vector<Attempt> of(const RecordId& job) const {
    const std::lock_guard lock(mutex_);
    std::vector<Attempt> found;
    for (const Attempt& each : attempts_) {
      if (each.job == job) found.push_back(each);
    }
    return found;
  }

 private:
  mutable std::mutex mutex_;
  std::deque<Attempt> attempts_; // oldest first
};

} // namespace oncekey
