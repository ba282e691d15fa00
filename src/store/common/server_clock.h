// ServerClock: a server's clock, estimated between its answers.
//
// An answer is as old as its way back, so the largest difference to our own clock is the truest. It is looked for in
// stretches of time, since the server's clock may be set back.
#pragma once

#include <oncekey/time.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

namespace oncekey {

// Safe to use from several threads.
class ServerClock {
 public:
  // `local` is the machine's monotonic clock, unless a test has another.
  explicit ServerClock(std::function<Millis()> local = {}) : local_(local ? std::move(local) : monotonic_clock) {}

  void learn(Time server_now) {
    const Millis here = local_();
    const Millis difference = server_now.time_since_epoch() - here;
    const std::lock_guard lock(mutex_);
    if (!stretch_ends_ || here >= *stretch_ends_) {
      last_difference_ = stretch_ends_ ? difference_ : difference;
      difference_ = difference;
      stretch_ends_ = here + kStretch;
    }
    difference_ = std::max(difference_, difference);
  }
  Time now() const {
    const Millis here = local_();
    const std::lock_guard lock(mutex_);
    return Time{here + std::max(difference_, last_difference_)};
  }

 private:
  static Millis monotonic_clock() {
    return std::chrono::floor<Millis>(std::chrono::steady_clock::now().time_since_epoch());
  }

  static constexpr Millis kStretch{10'000};
  const std::function<Millis()> local_;
  mutable std::mutex mutex_;
  Millis difference_{};      // server's clock minus ours, of this stretch
  Millis last_difference_{}; // and of the one before
  std::optional<Millis> stretch_ends_;
};

} // namespace oncekey
