// ServerClock: a server's clock, estimated between its answers.
//
// An answer is as old as its way back, so the largest difference to our own clock is the truest. It is looked for in
// stretches of time, since the server's clock may be set back.
#pragma once

#include <oncekey/time.h>

#include <functional>
#include <mutex>
#include <optional>

namespace oncekey {

// Safe to use from several threads.
class ServerClock {
 public:
  // `local` is the machine's monotonic clock, unless a test has another.
  explicit ServerClock(std::function<Millis()> local = {});
  void learn(Time server_now);
  Time now() const;

 private:
  static constexpr Millis kStretch{10'000};
  const std::function<Millis()> local_;
  mutable std::mutex mutex_;
  Millis difference_{};      // server's clock minus ours, of this stretch
  Millis last_difference_{}; // and of the one before
  std::optional<Millis> stretch_ends_;
};

} // namespace oncekey
