// BatchDelay: how long the next batch waits for more calls.
//
// A caller that was just answered often has its next call in a moment: after a claim the completion, after a completion
// the next claim. A batch costs the server a round trip and a sync, however few calls it carries. So the next batch
// waits for those callers, for at most half of the time that the batch before took: less than one more batch would
// cost. If fewer than half of them come, batching is switched off for the next kBatchesWithoutDelay batches.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace oncekey {

// Used by one thread at a time.
class BatchDelay {
 public:
  using Clock = std::chrono::steady_clock;
  // The longest delay, however slow the server is.
  static constexpr std::chrono::microseconds kDelayMax{1000};
  static constexpr int kBatchesWithoutDelay = 8;

  explicit BatchDelay(Clock::duration delay_max = kDelayMax) : delay_max_(delay_max) {}

  // A batch of so many calls was answered, with whatever answers, after so long.
  void answered(std::size_t calls, Clock::duration took, Clock::time_point now) {
    look(now);
    if (without_delay_ > 0) {
      --without_delay_;
    } else if (calls > 1) { // a single caller is not worth a delay
      missing_ += calls;
      expected_ = missing_;
      until_ = now + std::min(took / 2, delay_max_);
    }
  }
  // A call has come, from any caller.
  void came() {
    if (missing_ > 0) --missing_;
  }

  // How many more calls the next batch waits for; 0 when the delay is over.
  std::size_t missing(Clock::time_point now) {
    look(now);
    return missing_;
  }
  // The same, as it was at the last look.
  std::size_t missing() const { return missing_; }
  // The end of the delay.
  Clock::time_point until() const { return until_; }

 private:
  void look(Clock::time_point now) {
    if (missing_ == 0 || now < until_) return;
    if (missing_ > expected_ / 2) without_delay_ = kBatchesWithoutDelay;
    missing_ = 0;
  }

  const Clock::duration delay_max_;
  std::size_t expected_ = 0;
  std::size_t missing_ = 0;
  Clock::time_point until_{};
  int without_delay_ = 0; // batches that still leave at once
};

} // namespace oncekey
