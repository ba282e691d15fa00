// UsualDuration: how long the calls of a route take, as a moving average.
#pragma once

#include <oncekey/time.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

namespace oncekey {

// Safe to use from several threads. Two notes at the same moment may leave one of them out, which does not matter.
class UsualDuration {
 public:
  void note(std::chrono::nanoseconds duration) {
    const std::int64_t micros = std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
    const std::int64_t before = micros_.load(std::memory_order_relaxed);
    micros_.store(before < 0 ? micros : before + (micros - before) / kCallsCounted, std::memory_order_relaxed);
  }
  // Nothing before the first call has ended.
  std::optional<Millis> estimate() const {
    const std::int64_t micros = micros_.load(std::memory_order_relaxed);
    if (micros < 0) return std::nullopt;
    return std::chrono::ceil<Millis>(std::chrono::microseconds(micros));
  }

 private:
  // The newest call counts for an eighth: a route that has become slow is known as slow after some ten calls.
  static constexpr std::int64_t kCallsCounted = 8;
  std::atomic<std::int64_t> micros_{-1};
};

} // namespace oncekey
