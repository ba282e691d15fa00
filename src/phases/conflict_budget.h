// conflict_budget: runs the code of a serializable transaction, and runs it again after serialization failures while
// there is time left.
#pragma once

#include "base/backoff.h"
#include "phases/engine.h"
#include "phases/session.h"

#include <oncekey/transaction.h>

#include <chrono>
#include <functional>
#include <thread>

namespace oncekey::phases {

// How long to go on. The pauses are spread (base/backoff.h), so that transactions that were in each other's way do not
// meet again.
class ConflictBudget {
 public:
  explicit ConflictBudget(Millis length) : deadline_(std::chrono::steady_clock::now() + length) {}

  // Sleeps before the next try. False, at once, when the budget is used up.
  bool wait() {
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline_) return false;
    const auto pause = pause_after(++conflicts_, kFirstPause, kLongestPause, random_chance());
    std::this_thread::sleep_for(std::min<std::chrono::steady_clock::duration>(pause, deadline_ - now));
    return true;
  }

 private:
  // About half a local round trip, and about the longest a person does not notice.
  static constexpr std::chrono::microseconds kFirstPause{250};
  static constexpr std::chrono::microseconds kLongestPause{100'000};

  const std::chrono::steady_clock::time_point deadline_;
  std::uint32_t conflicts_ = 0;
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
