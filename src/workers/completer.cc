#include <oncekey/workers.h>

#include "base/crypto.h"
#include "phases/engine.h"
#include "phases/operation_rows.h"
#include "workers/concurrently.h"
#include "workers/error_text.h"
#include "workers/worker_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <thread>

namespace oncekey {
namespace {

using phases::Command;
using phases::Isolation;

void add(CompleterCounts& to, const CompleterCounts& counts) {
  to.picked += counts.picked;
  to.finished += counts.finished;
  to.not_yet += counts.not_yet;
  to.failed += counts.failed;
  to.dead += counts.dead;
  to.unknown += counts.unknown;
}

// A thousandth-share of the wait, drawn from its upper half: operations that failed together do not come back together.
std::int64_t jitter_permille() { return 500 + static_cast<std::int64_t>(random_u64() % 501); }

Status run_command(Database& database, const Command& command) {
  auto session = database.engine().session();
  if (!session.ok()) return std::move(session).fault();
  auto rows = (*session)->transact(Isolation::read_committed, {&command, 1});
  if (!rows.ok()) return std::move(rows).fault();
  return ok_status();
}

// The last operation picked. The next pick starts behind it, so that one run_once takes each operation once.
struct PickedUpTo {
  std::int64_t first_received = 0;
  std::string id;
};

Result<std::optional<UnfinishedOperation>> pick(Database& database, const CompleterOptions& options,
                                                const std::string& names, PickedUpTo& place) {
  auto session = database.engine().session();
  if (!session.ok()) return std::move(session).fault();
  const Command command{phases::kPickAbandoned,
                        {std::int64_t{options.grace.count()}, std::int64_t{options.backoff_first.count()},
                         std::int64_t{options.backoff_max.count()}, jitter_permille(), place.first_received,
                         Bytes{place.id}, std::string_view(names)}};
  auto rows = (*session)->transact(Isolation::read_committed, {&command, 1});
  if (!rows.ok()) return std::move(rows).fault();
  if (rows.value()[0].rows.empty()) return std::optional<UnfinishedOperation>{};
  auto row = phases::operation_of_row(rows.value()[0].rows[0]);
  if (!row.ok()) return std::move(row).fault();
  place = {row->first_received.time_since_epoch().count(), std::string(phases::as_bytes(row->id.bytes))};
  return std::optional(phases::unfinished_of(*row));
}

struct Attempt {
  std::optional<RunOutcome> outcome;
  std::string error; // when there is no outcome
};

Attempt attempt(const Completer::Resume& resume, const UnfinishedOperation& operation) {
  try {
    auto outcome = resume(operation);
    if (outcome.ok()) return {std::move(outcome).value(), {}};
    return {std::nullopt, outcome.fault().message};
  } catch (const std::exception& error) {
    return {std::nullopt, error.what()};
  } catch (...) {
    return {std::nullopt, "an exception that is not a std::exception was thrown"};
  }
}

std::map<std::string, Completer::Resume> resumed_by(Runner& runner) {
  std::map<std::string, Completer::Resume> by_name;
  for (const std::string& name : runner.operation_names()) {
    by_name[name] = [&runner](const UnfinishedOperation& operation) { return runner.resume(operation.id); };
  }
  return by_name;
}

class CompleterLoop final : public BackgroundWorker::Impl {
 public:
  CompleterLoop(Database& database, std::map<std::string, Completer::Resume> resume_by_name, CompleterOptions options)
      : Impl(options.idle_wait), database_(database), resume_by_name_(std::move(resume_by_name)), options_(options) {
    std::vector<std::string> names;
    for (const auto& [name, resume] : resume_by_name_) names.push_back(name);
    names_ = phases::text_list(names);
  }

  Result<CompleterCounts> run_once();
  CompleterCounts metrics() const {
    const std::lock_guard lock(metrics_mutex_);
    return total_;
  }

 private:
  // What the threads of one run_once share.
  struct Round {
    std::mutex mutex;
    CompleterCounts counts;
    PickedUpTo place;
    std::optional<Fault> failed;
    bool nothing_left = false;
  };

  Turn turn() override;
  void work(Round& round);
  void finish(Round& round, const UnfinishedOperation& operation);
  Status complete(const UnfinishedOperation& operation, CompleterCounts& counts);

  Database& database_;
  const std::map<std::string, Completer::Resume> resume_by_name_;
  std::string names_; // the operations' names, in the form that kPickAbandoned takes
  const CompleterOptions options_;
  mutable std::mutex metrics_mutex_;
  CompleterCounts total_;
};

Result<CompleterCounts> CompleterLoop::run_once() {
  Round round;
  {
    // Most of the time there is nothing to do, and no thread is needed to find that out.
    std::vector<std::jthread> others;
    std::optional<UnfinishedOperation> first;
    if (!stopping()) {
      auto picked = pick(database_, options_, names_, round.place);
      if (!picked.ok()) {
        round.failed = std::move(picked).fault();
      } else {
        first = std::move(picked).value();
      }
    }
    if (first) {
      ++round.counts.picked;
      const std::size_t wanted = std::min(options_.concurrency, options_.batch);
      const auto fewer = start_threads(
          others, wanted == 0 ? 0 : wanted - 1, [this, &round] { work(round); }, StartThread{});
      if (fewer) {
        failing("threads", *fewer);
      } else {
        working("threads");
      }
      finish(round, *first);
      work(round);
    }
  }
  {
    const std::lock_guard lock(metrics_mutex_);
    add(total_, round.counts);
  }
  if (round.failed) {
    failing("database", round.failed->message);
    return std::move(*round.failed);
  }
  working("database");
  return round.counts;
}

// Picks one operation after another, one thread at a time, and completes them beside the other threads.
void CompleterLoop::work(Round& round) {
  for (;;) {
    std::optional<UnfinishedOperation> operation;
    {
      const std::lock_guard lock(round.mutex);
      if (round.nothing_left || round.failed || round.counts.picked >= options_.batch || stopping()) return;
      auto picked = pick(database_, options_, names_, round.place);
      if (!picked.ok()) {
        round.failed = std::move(picked).fault();
        return;
      }
      operation = std::move(picked).value();
      if (!operation) {
        round.nothing_left = true;
        return;
      }
      ++round.counts.picked;
    }
    finish(round, *operation);
  }
}

void CompleterLoop::finish(Round& round, const UnfinishedOperation& operation) {
  CompleterCounts counts;
  auto done = complete(operation, counts);
  const std::lock_guard lock(round.mutex);
  add(round.counts, counts);
  if (!done.ok() && !round.failed) round.failed = std::move(done).fault();
}

Status CompleterLoop::complete(const UnfinishedOperation& operation, CompleterCounts& counts) {
  const Bytes id{phases::as_bytes(operation.id.bytes)};
  const auto bury = [&](const std::string& last_error) {
    ++counts.dead;
    const std::string why = fmt::format("Given up after {} attempts. The last error: {}", options_.attempts_max,
                                        last_error.empty() ? "none was told" : last_error);
    return run_command(database_,
                       {phases::kBuryUnowned, {id, std::string_view(why), std::int64_t{options_.attempts_max}}});
  };
  // The last attempt was counted and never ended: its process died.
  if (operation.attempts > options_.attempts_max) return bury(operation.last_error);
  const std::string what = "resuming " + operation.operation;
  Attempt tried = attempt(resume_by_name_.at(operation.operation), operation);
  if (!tried.outcome) {
    ++counts.failed;
    const std::string why = error_text(tried.error);
    failing(what, why);
    if (operation.attempts == options_.attempts_max) return bury(why);
    return run_command(database_, {phases::kNoteError, {id, std::string_view(why)}});
  }
  if (const auto* const unknown = std::get_if<NotDeclared>(&*tried.outcome)) {
    ++counts.unknown;
    const std::string why = error_text(unknown->why);
    failing(what, why);
    return run_command(database_, {phases::kNoAttempt, {id, std::string_view(why), std::int64_t{operation.attempts}}});
  }
  working(what);
  if (std::holds_alternative<Finished>(*tried.outcome)) {
    ++counts.finished;
  } else if (std::holds_alternative<DeadLettered>(*tried.outcome)) {
    ++counts.dead;
  } else {
    ++counts.not_yet;
  }
  return ok_status();
}

CompleterLoop::Turn CompleterLoop::turn() {
  const auto counts = run_once();
  if (!counts.ok()) return Turn::failed;
  return counts->picked == options_.batch ? Turn::worked : Turn::idle;
}

} // namespace

Completer::Completer(Runner& runner, CompleterOptions options)
    : Completer(runner.database(), resumed_by(runner), options) {}

Completer::Completer(Database& database, std::map<std::string, Resume> resume_by_name, CompleterOptions options)
    : BackgroundWorker(std::make_unique<CompleterLoop>(database, std::move(resume_by_name), options)) {}

Result<CompleterCounts> Completer::run_once() { return static_cast<CompleterLoop&>(*impl_).run_once(); }
CompleterCounts Completer::metrics() const { return static_cast<CompleterLoop&>(*impl_).metrics(); }

} // namespace oncekey
