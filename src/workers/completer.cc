#include <oncekey/workers.h>

#include "base/crypto.h"
#include "phases/engine.h"
#include "phases/operation_rows.h"
#include "workers/error_text.h"

#include <fmt/format.h>

#include <exception>

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

// Where the next pick goes on, so that one run_once walks over the abandoned operations once.
struct PickedUpTo {
  std::int64_t first_received = 0;
  std::string id;
};

Result<std::optional<UnfinishedOperation>> pick(Database& database, const CompleterOptions& options,
                                                PickedUpTo& place) {
  auto session = database.engine().session();
  if (!session.ok()) return std::move(session).fault();
  const Command command{
      phases::kPickAbandoned,
      {std::int64_t{options.grace.count()}, std::int64_t{options.backoff_first.count()},
       std::int64_t{options.backoff_max.count()}, jitter_permille(), place.first_received, Bytes{place.id}}};
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
    return {std::nullopt, "something that is no std::exception was thrown"};
  }
}

} // namespace

Completer::Completer(Runner& runner, CompleterOptions options)
    : Completer(
          runner.database(), [&runner](const UnfinishedOperation& operation) { return runner.resume(operation.id); },
          options) {}

Completer::Completer(Database& database, Resume resume, CompleterOptions options)
    : BackgroundWorker(options.idle_wait), database_(database), resume_(std::move(resume)), options_(options) {}

Result<CompleterCounts> Completer::run_once() {
  CompleterCounts counts;
  PickedUpTo place;
  std::optional<Fault> failed;
  while (counts.picked < options_.batch && !stopping()) {
    auto picked = pick(database_, options_, place);
    if (!picked.ok()) {
      failed = std::move(picked).fault();
      break;
    }
    if (!picked.value()) break;
    ++counts.picked;
    if (auto done = complete(*picked.value(), counts); !done.ok()) {
      failed = std::move(done).fault();
      break;
    }
  }
  {
    const std::lock_guard lock(metrics_mutex_);
    add(total_, counts);
  }
  if (failed) {
    failing("database", failed->message);
    return std::move(*failed);
  }
  working("database");
  return counts;
}

Status Completer::complete(const UnfinishedOperation& operation, CompleterCounts& counts) {
  const Bytes id{phases::as_bytes(operation.id.bytes)};
  if (operation.attempts > options_.attempts_max) {
    ++counts.dead;
    const std::string why = fmt::format("Given up after {} attempts. The last error: {}", options_.attempts_max,
                                        operation.last_error.empty() ? "none was told" : operation.last_error);
    return run_command(database_, {phases::kBuryUnowned, {id, std::string_view(why)}});
  }
  Attempt tried = attempt(resume_, operation);
  if (!tried.outcome) {
    ++counts.failed;
    const std::string why = error_text(tried.error);
    failing("resuming", why);
    return run_command(database_, {phases::kNoteError, {id, std::string_view(why)}});
  }
  working("resuming");
  if (std::holds_alternative<Finished>(*tried.outcome)) {
    ++counts.finished;
  } else if (std::holds_alternative<DeadLettered>(*tried.outcome)) {
    ++counts.dead;
  } else {
    ++counts.not_yet;
  }
  return ok_status();
}

CompleterCounts Completer::metrics() const {
  const std::lock_guard lock(metrics_mutex_);
  return total_;
}

BackgroundWorker::Turn Completer::turn() {
  const auto counts = run_once();
  if (!counts.ok()) return Turn::failed;
  return counts->picked == options_.batch ? Turn::worked : Turn::idle;
}

} // namespace oncekey
