// WaitingWatch: counts the keys that wait for a person, for the gauge oncekey_keys and the log.
//
// A client that gave up does not notice that its key was left open by a crash. So such keys are logged at start and
// whenever there are more of them, and an alert can use the gauge.
#pragma once

#include "gateway/shared.h"
#include "net/loop.h"

#include "core/store.h"

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>

namespace oncekey {

// Belongs to the loop of its timers.
class WaitingWatch {
 public:
  // A count begins this long after the last one, or later: counting takes a twentieth of the time at most.
  static constexpr std::chrono::seconds kEvery{3};
  // A growing number is logged at most this often.
  static constexpr std::chrono::seconds kSaidEvery{60};

  WaitingWatch(GatewayShared& shared, Loop& timers);

 private:
  // Where a store leaves its answer, on any thread and possibly late.
  struct Inbox {
    std::mutex mutex;
    std::optional<WaitingKeys> counted;
    bool asked = false;
  };

  void look();
  void take_answer(MonotonicTime now);
  void say(const WaitingKeys& counted, MonotonicTime now);

  GatewayShared& shared_;
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  MonotonicTime asked_at_{};
  MonotonicTime ask_again_{};
  MonotonicTime say_again_{};
  WaitingKeys said_;
  Timer timer_;
};

} // namespace oncekey
