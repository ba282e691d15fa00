#include <oncekey/runner.h>

#include "core/replies.h"
#include "phases/execution.h"
#include "phases/request_identity.h"

#include <oncekey/check.h>

#include <fmt/format.h>

#include <algorithm>

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

std::chrono::seconds retry_after(const OperationRow& row) {
  const auto left = std::chrono::ceil<std::chrono::seconds>(row.lease_until - row.now);
  return std::max(left, std::chrono::seconds(1));
}

} // namespace

struct Runner::Impl {
  Impl(Database& given, std::vector<Operation> declared, RunnerOptions wanted)
      : database(given),
        operations(std::move(declared)),
        options(std::move(wanted)),
        keeper(given.engine(), options.lease, options.call_max) {}

  const Operation* find(std::string_view name) const {
    for (const Operation& operation : operations) {
      if (operation.name() == name) return &operation;
    }
    return nullptr;
  }

  // Ids and fingerprints are keyed with the database's secret, which is read once.
  Result<const KeyedHash*> keyed_hash() {
    const std::lock_guard lock(hash_mutex);
    if (!hash) {
      auto secret = database.engine().secret();
      if (!secret.ok()) return std::move(secret).fault();
      hash = std::make_unique<KeyedHash>(*secret);
    }
    return hash.get();
  }

  Result<RunOutcome> run(const OperationRequest& request, SessionSource sessions);
  Result<RunOutcome> resume(const RecordId& id, SessionSource sessions);
  Result<RunOutcome> settle(KeyRows found, const phases::RequestIdentity* asked, SessionSource& sessions);
  Result<RunOutcome> own(OperationRow row, SessionSource& sessions);
  Result<RunOutcome> look(const RecordId& id, SessionSource& sessions);
  RunOutcome replayed(StoredResponse response);
  RunOutcome busy(std::chrono::seconds after);
  Result<KeyRows> find_rows(const RecordId& id, SessionSource& sessions);

  Database& database;
  const std::vector<Operation> operations;
  const RunnerOptions options;
  phases::RunnerCounters counters;
  phases::CallKeeper keeper;
  std::mutex hash_mutex;
  std::unique_ptr<KeyedHash> hash;
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
  if (!operation || operation->steps().empty()) {
    return invalid(fmt::format("no operation named {} was declared", request.operation));
  }
  auto keyed = keyed_hash();
  if (!keyed.ok()) return std::move(keyed).fault();
  auto identified = phases::identify(options.policy, request, **keyed);
  if (auto* const refused = std::get_if<KeyInvalid>(&identified)) return RunOutcome(std::move(*refused));
  const auto& asked = std::get<phases::RequestIdentity>(identified);

  // Looking first costs nothing where the database is a file, and saves retries from waiting for its one writer.
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
  if (!found->operation && !found->answer) return invalid(fmt::format("there is no operation {}", short_hash(id)));
  return settle(std::move(found).value(), nullptr, sessions);
}

// Somebody was here before. The fingerprint is compared before the state is looked at.
Result<RunOutcome> Runner::Impl::settle(KeyRows found, const phases::RequestIdentity* asked, SessionSource& sessions) {
  if (found.answer) {
    if (asked && found.answer->fingerprint != asked->fingerprint) {
      ++counters.mismatches;
      return RunOutcome(Mismatch{});
    }
    return replayed(std::move(found.answer->response));
  }
  // It vanished between two looks: finished and expired at once. The next try is a first one.
  if (!found.operation) return busy(std::chrono::seconds(1));
  const OperationRow& row = *found.operation;
  if (asked && row.fingerprint != asked->fingerprint) {
    ++counters.mismatches;
    return RunOutcome(Mismatch{});
  }
  if (row.dead_at) return RunOutcome(DeadLettered{row.last_error});
  if (row.lease_until > row.now) return busy(retry_after(row));

  auto taken = sessions.with<std::optional<OperationRow>>(
      [&](Session& session) { return phases::take_over(session, row.id, row.fence, options.lease); });
  if (!taken.ok()) {
    if (taken.fault().kind != FaultKind::conflict) return std::move(taken).fault();
    ++counters.conflicts;
    return RunOutcome(Conflict{});
  }
  // Somebody else was quicker.
  if (!taken.value()) return look(row.id, sessions);
  ++counters.takeovers;
  return own(std::move(*taken.value()), sessions);
}

Result<RunOutcome> Runner::Impl::own(OperationRow row, SessionSource& sessions) {
  const Operation* const operation = find(row.request.operation);
  const phases::RunnerParts parts{database.engine(), options, keeper, counters};
  const Operation undeclared(row.request.operation); // has no steps, which the execution reports
  const RecordId id = row.id;
  phases::Execution execution(parts, operation ? *operation : undeclared, sessions, std::move(row));
  auto end = execution.run();
  if (!end.ok()) return std::move(end).fault();
  if (auto* const finished = std::get_if<Finished>(&end.value())) {
    ++counters.finished;
    return RunOutcome(std::move(*finished));
  }
  if (auto* const conflict = std::get_if<Conflict>(&end.value())) return RunOutcome(*conflict);
  if (auto* const dead = std::get_if<DeadLettered>(&end.value())) return RunOutcome(std::move(*dead));
  return look(id, sessions);
}

// The ownership is somebody else's: whatever the record says by now is the answer.
Result<RunOutcome> Runner::Impl::look(const RecordId& id, SessionSource& sessions) {
  auto found = find_rows(id, sessions);
  if (!found.ok()) return std::move(found).fault();
  if (found->answer) return replayed(std::move(found->answer->response));
  if (!found->operation) return busy(std::chrono::seconds(1));
  if (found->operation->dead_at) return RunOutcome(DeadLettered{found->operation->last_error});
  return busy(retry_after(*found->operation));
}

Runner::Runner(Database& database, std::vector<Operation> operations, RunnerOptions options) {
  ONCEKEY_CHECK(options.lease > Millis(0) && options.policy.retention > Millis(0),
                "leases and retentions are positive");
  for (std::size_t i = 0; i < operations.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      ONCEKEY_CHECK(operations[i].name() != operations[j].name(), "operations have different names");
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

Database& Runner::database() const { return impl_->database; }
const RunnerOptions& Runner::options() const { return impl_->options; }

} // namespace oncekey
