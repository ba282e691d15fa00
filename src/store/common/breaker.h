// Breaker: the circuit breaker of one server. Stops asking a server that does not answer.
//
// A dead server costs every caller its whole time-out; a thousand callers waiting for it are worse than a thousand
// quick refusals. After a few failures in a row the breaker opens and calls are refused at once, until a probe finds
// the server to answer again.
#pragma once

#include <oncekey/result.h>

#include <atomic>
#include <mutex>
#include <optional>

namespace oncekey {

inline constexpr int kFailuresToOpen = 5;

// Safe to use from several threads. While all is well a call costs two relaxed loads.
class Breaker {
 public:
  bool is_open() const { return open_.load(std::memory_order_acquire); }
  // Why calls are refused, while they are.
  std::optional<Fault> open_because() const;

  void succeeded();
  // True if this failure has opened it: the caller then probes the server until it is back.
  bool failed(const Fault& fault);

 private:
  std::atomic<int> failures_{0}; // in a row
  std::atomic<bool> open_{false};
  mutable std::mutex mutex_; // guards the rest, and every change
  std::optional<Fault> reason_;
};

} // namespace oncekey
