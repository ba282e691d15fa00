// conflict_budget: runs the code of a serializable transaction, and runs it again after serialization failures while
// there is time left.
#pragma once

#include "phases/engine.h"
#include "phases/session.h"

#include <oncekey/transaction.h>

#include <chrono>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>

namespace oncekey::phases {

// How long to go on. Waits double from try to try and are drawn at random, so that those who were in each other's way
// do not meet again.
class ConflictBudget {
 public:
  explicit ConflictBudget(Millis length) : deadline_(std::chrono::steady_clock::now() + length) {}

  // Sleeps before the next try. False, at once, when the budget is used up.
  bool wait() {
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline_) return false;
    const auto longest = std::chrono::microseconds(std::min<std::int64_t>(kLongestMicros, kFirstMicros << tries_));
    if (tries_ < 16) ++tries_;
    // Few transactions ever come here; seeding asks the operating system.
    if (!random_) random_.emplace(std::random_device{}());
    const auto drawn =
        std::chrono::microseconds(std::uniform_int_distribution<std::int64_t>(0, longest.count())(*random_));
    std::this_thread::sleep_for(std::min<std::chrono::steady_clock::duration>(drawn, deadline_ - now));
    return true;
  }

 private:
  // About a local round trip, and about the longest a person does not notice.
  static constexpr std::int64_t kFirstMicros = 500;
  static constexpr std::int64_t kLongestMicros = 100'000;

  const std::chrono::steady_clock::time_point deadline_;
  int tries_ = 0;
  std::optional<std::minstd_rand> random_;
};

DatabaseError database_error(const Fault& fault, const std::string& code);

// Calls `attempt` with a session until it succeeds, fails with another fault than `conflict`, or the budget is used up.
Status with_retries(Engine& engine, Millis budget_length, const std::function<Status(Session&)>& attempt);

// Runs application code in the session's open transaction. A serialization failure that it threw becomes a fault of
// kind `conflict`; any other exception is passed on. In both cases the transaction has been rolled back.
Status run_code(Session& session, const std::function<void()>& code);

// Stages the transaction's jobs, runs the commands and commits. Rolled back on any fault.
Status end_with_jobs(Session& session, const Transaction& transaction, std::span<const Command> commands);

} // namespace oncekey::phases
