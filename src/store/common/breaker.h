// Breaker: the circuit breaker of one server. Stops asking a server that does not answer.
//
// A dead server costs every caller its whole time-out; a thousand callers waiting for it are worse than a thousand
// quick refusals. After a few failures in a row the breaker opens and calls are refused at once, until a probe finds
// the server to answer again.
#pragma once

#include <oncekey/result.h>

#include <atomic>
#include <mutex>

namespace oncekey {

inline constexpr int kFailuresToOpen = 5;

// Safe to use from several threads. While all is well a call costs two relaxed loads.
class Breaker {
 public:
  bool is_open() const { return open_.load(std::memory_order_acquire); }
  // Why calls are refused, while they are.
  std::optional<Fault> open_because() const {
    if (!is_open()) return std::nullopt;
    const std::lock_guard lock(mutex_);
    return reason_;
  }

  void succeeded() {
    if (failures_.load(std::memory_order_relaxed) == 0 && !open_.load(std::memory_order_relaxed)) return;
    const std::lock_guard lock(mutex_);
    failures_.store(0, std::memory_order_relaxed);
    open_.store(false, std::memory_order_release);
    reason_.reset();
  }
  // True if this failure has opened it: the caller then probes the server until it is back.
  bool failed(const Fault& fault) {
    const std::lock_guard lock(mutex_);
    reason_ = fault;
    if (failures_.fetch_add(1, std::memory_order_relaxed) + 1 < kFailuresToOpen) return false;
    return !open_.exchange(true, std::memory_order_acq_rel);
  }

 private:
  std::atomic<int> failures_{0}; // in a row
  std::atomic<bool> open_{false};
  mutable std::mutex mutex_; // guards the rest, and every change
  std::optional<Fault> reason_;
};

} // namespace oncekey
