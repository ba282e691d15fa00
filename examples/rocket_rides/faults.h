// How the stand-ins misbehave, and how a process of ours is made to die at a chosen statement.
#pragma once

#include <oncekey/database.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <random>

namespace rides {

// What becomes of a request to a stand-in.
enum class Fate {
  served,
  error_before, // 500, and nothing was done
  error_after,  // 500, although it was done
  drop_before,  // the connection is lost before anything was done
  drop_after,   // it was done, and the answer is lost
};

class Dice {
 public:
  Dice(int errors_percent, int drops_percent, unsigned seed)
      : errors_percent_(errors_percent), drops_percent_(drops_percent), random_(seed) {}

  // From any thread.
  Fate draw() {
    const std::lock_guard lock(mutex_);
    const int number = std::uniform_int_distribution<int>(0, 99)(random_);
    const bool after = std::bernoulli_distribution(0.5)(random_);
    if (number < errors_percent_) return after ? Fate::error_after : Fate::error_before;
    if (number < errors_percent_ + drops_percent_) return after ? Fate::drop_after : Fate::drop_before;
    return Fate::served;
  }

 private:
  const int errors_percent_;
  const int drops_percent_;
  std::mutex mutex_;
  std::mt19937 random_;
};

// Kills this process with SIGKILL, or stops it with SIGSTOP, at the Nth moment before or after a statement, counted
// from arm() on. The booking code knows nothing of this: it is an observer of the database.
class CrashPoint {
 public:
  enum class Then { die, pause };

  // Moment 0 never comes.
  CrashPoint(int moment, Then then) : state_(std::make_shared<State>(moment, then)) {}

  void arm() { state_->armed = true; }
  oncekey::StatementObserver observer() const;

 private:
  struct State {
    State(int moment, Then what) : left(moment), then(what) {}
    std::atomic<bool> armed = false;
    std::atomic<int> left;
    const Then then;
  };
  std::shared_ptr<State> state_;
};

} // namespace rides
