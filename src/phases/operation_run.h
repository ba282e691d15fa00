// OperationRun: the steps of an operation, run by its owner from the recovery point to a response.
#pragma once

#include "core/policy.h"
#include "phases/broken_off.h"
#include "phases/call_keeper.h"
#include "phases/engine.h"
#include "phases/operation_rows.h"

#include <oncekey/runner.h>

#include <any>
#include <functional>
#include <variant>

namespace oncekey::phases {

struct RunnerCounters {
  std::atomic<std::uint64_t> runs{0}, finished{0}, replayed{0}, in_progress{0}, mismatches{0}, takeovers{0},
      leases_lost{0}, phases_repeated{0}, conflicts{0}, dead_lettered{0};
};

// The sessions that a run works on: one of the pool for each use, or the application's own for the whole run.
class SessionSource {
 public:
  explicit SessionSource(Engine& engine) : engine_(engine) {}
  SessionSource(Engine& engine, Session& own) : engine_(engine), own_(&own) {}

  // Calls `use` with a session. Returns the pool's fault if there is none.
  template <class T>
  Result<T> with(const std::function<Result<T>(Session&)>& use) {
    if (own_) {
      const Watched watched{*this, *own_};
      return use(*own_);
    }
    auto session = engine_.session();
    if (!session.ok()) return std::move(session).fault();
    const Watched watched{*this, **session};
    return use(**session);
  }
  // Whether a session that was used here got no answer in time.
  bool timed_out() const { return timed_out_; }

 private:
  // Notes after each use, also one that threw, whether the session timed out.
  struct Watched {
    SessionSource& source;
    const Session& session;
    ~Watched() { source.timed_out_ = source.timed_out_ || session.timed_out(); }
  };

  Engine& engine_;
  Session* own_ = nullptr;
  bool timed_out_ = false;
};

// What a run needs that stays the same from run to run.
struct RunnerParts {
  Engine& engine;
  const RunnerOptions& options;
  const Policy& policy; // the options'
  CallKeeper& keeper;
  BrokenOff& broken_off;
  RunnerCounters& counters;
};

class OperationRun {
 public:
  OperationRun(const RunnerParts& parts, const Operation& operation, SessionSource& sessions, OperationRow row);

  // The ownership was lost: another run has taken over, and the record tells how far it is.
  struct Lost {};
  using End = std::variant<Finished, Conflict, DeadLettered, Lost>;

  // Throws what the operation's functions throw. A run that does not finish gives its lease up, so that the next
  // attempt need not wait for the end of it. One whose lease could not be given up is remembered as broken off.
  Result<End> run();

 private:
  struct PhaseResult {
    std::optional<PhaseEnd> end; // nothing if the ownership was lost; then nothing was changed
    Notes notes;
  };

  Result<End> run_steps();
  Result<std::optional<End>> step(const Operation::Step& step);
  // Why the step's call must not be made any more.
  std::optional<std::string> memory_over(const Operation::Step& step) const;
  std::any call(const Operation::Step& step);
  Result<PhaseResult> phase(const Operation::Step& step, const std::any& outcome);
  Result<PhaseResult> phase_once(Session& session, const Operation::Step& step, const std::any& outcome);
  template <class Run>
  auto observed(const Operation::Step& step, StepEvent::Part part, const Run& run) const;
  Status check_end(const Phase& phase, const PhaseEnd& end) const;
  Result<PhaseResult> end_phase(Session& session, std::int64_t transaction, const Phase& phase, PhaseEnd end);
  Result<End> dead_letter(const std::string& why);
  void give_up_lease();
  Time now() const; // the database's clock, counted on from the claim

  const RunnerParts& parts_;
  const Operation& operation_;
  SessionSource& sessions_;
  OperationRow row_;
  std::size_t at_ = 0; // the step under way
  const std::chrono::steady_clock::time_point claimed_at_ = std::chrono::steady_clock::now();
  const Time expires_at_; // the answer's
  const BucketId bucket_;
  const std::string bucket_name_;
  const std::string insert_for_sqlite_;
};

} // namespace oncekey::phases
