// Returning: whether those who were just answered are worth waiting for.
//
// A caller with an answer often has its next call in a moment: whoever has claimed completes, whoever has completed
// claims again. A group of calls costs the server a round trip and a sync, however many they are, so it pays to give
// them that moment before the next group leaves: up to half of what the group before took, which is less than a group
// more would cost. When they do not come, nobody is waited for for a while.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace oncekey {

// Used by one thread at a time.
class Returning {
 public:
  using Clock = std::chrono::steady_clock;
  // Nobody is waited for longer, however slow the server is.
  static constexpr std::chrono::microseconds kTimeMax{1000};
  static constexpr int kGroupsAfterWaitingInVain = 8;

  explicit Returning(Clock::duration time_max = kTimeMax) : time_max_(time_max) {}

  // A group of so many calls was answered, in whatever way, after so long.
  void answered(std::size_t calls, Clock::duration took, Clock::time_point now) {
    look(now);
    if (hurried_ > 0) {
      --hurried_;
    } else if (calls > 1) { // a single caller is not worth waiting for
      missing_ += calls;
      expected_ = missing_;
      until_ = now + std::min(took / 2, time_max_);
    }
  }
  // A call has come, whoever made it.
  void came() {
    if (missing_ > 0) --missing_;
  }

  // So many more are worth waiting for until then; none when the time is up.
  std::size_t missing(Clock::time_point now) {
    look(now);
    return missing_;
  }
  // The same, as it was at the last look.
  std::size_t missing() const { return missing_; }
  Clock::time_point until() const { return until_; }

 private:
  void look(Clock::time_point now) {
    if (missing_ == 0 || now < until_) return;
    if (missing_ > expected_ / 2) hurried_ = kGroupsAfterWaitingInVain;
    missing_ = 0;
  }

  const Clock::duration time_max_;
  std::size_t expected_ = 0;
  std::size_t missing_ = 0;
  Clock::time_point until_{};
  int hurried_ = 0; // groups that still leave at once since waiting was in vain
};

} // namespace oncekey
