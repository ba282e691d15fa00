#include <oncekey/runner.h>

#include "base/utf8.h"
#include "core/decide.h"
#include "phases/conflict_budget.h"
#include "phases/core_rules.h"
#include "phases/operation_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace oncekey {

using phases::KeyRows;
using phases::OperationRow;
using phases::Session;
using phases::SessionSource;

namespace {

std::string random_identity() {
  Secret bytes;
  fill_random(bytes);
  return std::string(phases::as_bytes(bytes));
}

// How long to wait for the row lock of another completer's search, which holds it for a moment.
constexpr Millis kPassingLock{50};

// As the gateway says it. A lease that ends sooner lets the retry take over.
std::chrono::seconds when_to_retry(const OperationRow& row) {
  return std::min(retry_after(row.now - row.first_received, std::nullopt),
                  retry_after_lease(row.lease_until - row.now));
}

} // namespace

struct Runner::Impl {
  Impl(Database& given, std::vector<Operation> declared, RunnerOptions wanted)
      : database(given),
        operations(std::move(declared)),
        options(std::move(wanted)),
        policy(phases::policy_of(options.policy)),
        broken_off(options.lease),
        keeper(given.engine(), options.lease, options.call_max) {}

  const Operation* find(std::string_view name) const {
    const auto found = std::ranges::find(operations, name, &Operation::name);
    return found == operations.end() ? nullptr : &*found;
  }

  Result<RunOutcome> run(const OperationRequest& request, SessionSource sessions);
  Result<RunOutcome> resume(const RecordId& id, SessionSource sessions);
  Result<RunOutcome> settle(KeyRows found, const phases::RequestIdentity* asked, SessionSource& sessions);
  Result<RunOutcome> own(OperationRow row, SessionSource& sessions);
  Result<RunOutcome> answer_of(KeyRows found);
  RunOutcome replayed(StoredResponse response);
  RunOutcome busy(std::chrono::seconds after);
  Result<KeyRows> find_rows(const RecordId& id, SessionSource& sessions);
  // Why this runner cannot go on with it.
  std::optional<NotDeclared> not_declared(const OperationRow& row) const;

  Database& database;
  const std::vector<Operation> operations;
  const RunnerOptions options;
  const Policy policy;
  phases::BrokenOff broken_off;
  phases::RunnerCounters counters;
  phases::CallKeeper keeper;
};

RunOutcome Runner::Impl::replayed(StoredResponse response) {
  ++counters.replayed;
  return Finished{std::move(response), true};
}

RunOutcome Runner::Impl::busy(std::chrono::seconds after) {
  ++counters.in_progress;
  return InProgress{after};
}

Result<KeyRows> Runner::Impl::find_rows(const RecordId& id, SessionSource& sessions) {
  return sessions.with<KeyRows>([&](Session& session) { return phases::find_key(session, id); });
}

Result<RunOutcome> Runner::Impl::run(const OperationRequest& request, SessionSource sessions) {
  ++counters.runs;
  const Operation* const operation = find(request.operation);
  if (!operation) {
    return RunOutcome(NotDeclared{NotDeclared::Part::operation,
                                  fmt::format("no operation named {} was declared", as_utf8(request.operation))});
  }
  auto keyed = database.engine().keyed_hash();
  if (!keyed.ok()) return std::move(keyed).fault();
  auto identified = phases::identify(policy, request, **keyed);
  if (auto* const refused = std::get_if<KeyInvalid>(&identified)) return RunOutcome(std::move(*refused));
  if (auto* const refused = std::get_if<RequestInvalid>(&identified)) return RunOutcome(std::move(*refused));
  const auto& asked = std::get<phases::RequestIdentity>(identified);

  // On SQLite a look costs no round trip, and a retry that finds its record need not wait for the one writer.
  if (database.dialect() == Dialect::sqlite) {
    auto found = find_rows(asked.id, sessions);
    if (!found.ok()) return std::move(found).fault();
    if (found->operation || found->answer) return settle(std::move(found).value(), &asked, sessions);
  }
  const phases::NewOperation fresh{asked.id, asked.fingerprint, operation->steps().front().recovery_point,
                                   random_identity(), options.lease};
  OperationRequest kept = request;
  kept.key = asked.key;
  auto claimed = sessions.with<KeyRows>([&](Session& session) { return phases::claim_new(session, fresh, kept); });
  if (!claimed.ok()) {
    if (claimed.fault().kind == FaultKind::timeout) broken_off.remember_claim(fresh.id, fresh.identity);
    if (claimed.fault().kind != FaultKind::conflict) return std::move(claimed).fault();
    ++counters.conflicts;
    return RunOutcome(Conflict{});
  }
  if (claimed->operation && claimed->operation->identity == fresh.identity) {
    return own(std::move(*claimed->operation), sessions);
  }
  return settle(std::move(claimed).value(), &asked, sessions);
}

Result<RunOutcome> Runner::Impl::resume(const RecordId& id, SessionSource sessions) {
  ++counters.runs;
  auto found = find_rows(id, sessions);
  if (!found.ok()) return std::move(found).fault();
  if (!found->operation && !found->answer) {
    return RunOutcome(NotDeclared{NotDeclared::Part::operation,
                                  fmt::format("there is no operation {} in this database", short_hash(id))});
  }
  return settle(std::move(found).value(), nullptr, sessions);
}

std::optional<NotDeclared> Runner::Impl::not_declared(const OperationRow& row) const {
  const Operation* const operation = find(row.request.operation);
  if (!operation) {
    return NotDeclared{
        NotDeclared::Part::operation,
        fmt::format("no operation named {} was declared here: it belongs to another program, or to another "
                    "version of this one",
                    row.request.operation)};
  }
  if (operation->step_at(row.recovery_point)) return std::nullopt;
  return NotDeclared{NotDeclared::Part::recovery_point,
                     fmt::format("operation {} has no step at the recovery point {}: another version of the program "
                                 "reached it (docs/CHANGING_AN_OPERATION.md)",
                                 operation->name(), row.recovery_point)};
}

// The key has been used before. The fingerprint is compared before the state: a mismatch learns nothing else.
Result<RunOutcome> Runner::Impl::settle(KeyRows found, const phases::RequestIdentity* asked, SessionSource& sessions) {
  const Fingerprint* known = found.operation ? &found.operation->fingerprint : nullptr;
  if (found.answer) known = &found.answer->fingerprint;
  if (asked && known && *known != asked->fingerprint) {
    ++counters.mismatches;
    return RunOutcome(Mismatch{});
  }
  if (found.answer || !found.operation || found.operation->dead_at) return answer_of(std::move(found));
  const OperationRow& row = *found.operation;
  // A run of this very runner that the database broke off may go on before its lease is over.
  const bool ours = broken_off.take(row);
  if (row.lease_until > row.now && !ours) return busy(when_to_retry(row));
  if (auto unknown = not_declared(row)) return RunOutcome(*std::move(unknown));

  const auto take = [&] {
    return sessions.with<std::optional<OperationRow>>([&](Session& session) {
      return phases::take_over(session, row.id, row.fence, options.lease,
                               ours ? phases::Whose::own : phases::Whose::others);
    });
  };
  auto taken = take();
  // A completer that searches for work locks rows for a moment: that is waited out. An owner that is paused within a
  // phase holds its lock for longer.
  phases::ConflictBudget passing(kPassingLock);
  while (taken.ok() && !taken.value()) {
    auto now = find_rows(row.id, sessions);
    if (!now.ok()) return std::move(now).fault();
    const bool is_free = now->operation && now->operation->fence == row.fence &&
                         (ours || now->operation->lease_until <= now->operation->now) && !now->operation->dead_at;
    if (!is_free || !passing.wait()) {
      if (ours) broken_off.remember(row.id, row.fence);
      return answer_of(std::move(now).value());
    }
    taken = take();
  }
  if (!taken.ok()) {
    if (ours) broken_off.remember(row.id, row.fence); // the database has failed again
    if (taken.fault().kind != FaultKind::conflict) return std::move(taken).fault();
    ++counters.conflicts;
    return RunOutcome(Conflict{});
  }
  ++counters.takeovers;
  return own(std::move(*taken.value()), sessions);
}

Result<RunOutcome> Runner::Impl::own(OperationRow row, SessionSource& sessions) {
  const Operation* const operation = find(row.request.operation);
  // The step was declared when the row was read. Between that and the takeover, a newer version of the program may have
  // moved the operation on.
  if (auto unknown = not_declared(row)) {
    // If giving the lease up fails, it runs out by itself.
    sessions
        .with<SqlRows>([&](Session& session) { return session.transact_one(phases::give_lease_up(row.id, row.fence)); })
        .ok();
    return RunOutcome(*std::move(unknown));
  }
  const phases::RunnerParts parts{database.engine(), options, policy, keeper, broken_off, counters};
  const RecordId id = row.id;
  auto end = phases::OperationRun(parts, *operation, sessions, std::move(row)).run();
  if (!end.ok()) return std::move(end).fault();
  if (auto* const finished = std::get_if<Finished>(&end.value())) {
    ++counters.finished;
    return RunOutcome(std::move(*finished));
  }
  if (auto* const conflict = std::get_if<Conflict>(&end.value())) return RunOutcome(*conflict);
  if (auto* const dead = std::get_if<DeadLettered>(&end.value())) return RunOutcome(std::move(*dead));
  // Another run is the owner now: answers from the present state of the record.
  auto found = find_rows(id, sessions);
  if (!found.ok()) return std::move(found).fault();
  return answer_of(std::move(found).value());
}

// The outcome for a run that is not the owner.
Result<RunOutcome> Runner::Impl::answer_of(KeyRows found) {
  if (found.answer) return replayed(std::move(found.answer->response));
  // It vanished between two looks: finished, and expired at once. The next attempt is a first request.
  if (!found.operation) return busy(std::chrono::seconds(1));
  if (found.operation->dead_at) return RunOutcome(DeadLettered{found.operation->last_error});
  return busy(when_to_retry(*found.operation));
}

Runner::Runner(Database& database, std::vector<Operation> operations, RunnerOptions options) {
  if (options.lease <= Millis(0)) throw std::invalid_argument("RunnerOptions::lease must be greater than 0");
  if (options.policy.retention <= Millis(0))
    throw std::invalid_argument("RunnerPolicy::retention must be greater than 0");
  for (std::size_t i = 0; i < operations.size(); ++i) {
    operations[i].check();
    for (std::size_t j = 0; j < i; ++j) {
      if (operations[i].name() == operations[j].name()) {
        throw std::invalid_argument(fmt::format("two operations are named {}", operations[i].name()));
      }
    }
  }
  impl_ = std::make_unique<Impl>(database, std::move(operations), std::move(options));
}

Runner::~Runner() = default;

Result<RunOutcome> Runner::run(const OperationRequest& request) {
  return impl_->run(request, SessionSource(impl_->database.engine()));
}

Result<RunOutcome> Runner::run(const OperationRequest& request, OwnConnection connection) {
  auto adopted = impl_->database.engine().adopt(connection);
  if (!adopted.ok()) return std::move(adopted).fault();
  return impl_->run(request, SessionSource(impl_->database.engine(), *adopted.value()));
}

Result<RunOutcome> Runner::resume(const RecordId& id) {
  return impl_->resume(id, SessionSource(impl_->database.engine()));
}

RunnerMetrics Runner::metrics() const {
  const phases::RunnerCounters& counters = impl_->counters;
  return {.runs = counters.runs,
          .finished = counters.finished,
          .replayed = counters.replayed,
          .in_progress = counters.in_progress,
          .mismatches = counters.mismatches,
          .takeovers = counters.takeovers,
          .leases_lost = counters.leases_lost,
          .phases_repeated = counters.phases_repeated,
          .conflicts = counters.conflicts,
          .dead_lettered = counters.dead_lettered};
}

std::vector<std::string> Runner::operation_names() const {
  std::vector<std::string> names;
  for (const Operation& operation : impl_->operations) names.push_back(operation.name());
  return names;
}

Database& Runner::database() const { return impl_->database; }
const RunnerOptions& Runner::options() const { return impl_->options; }

} // namespace oncekey
