#include "phases/operation_run.h"

#include "base/utf8.h"
#include "core/record_codec.h"
#include "core/replies.h"
#include "phases/conflict_budget.h"
#include "phases/notes.h"

#include <oncekey/check.h>
#include <oncekey/derive.h>

#include <fmt/format.h>

#include <algorithm>

namespace oncekey::phases {
namespace {

// An operation may go back to an earlier recovery point, but not for ever in one run.
constexpr int kStepsMax = 1000;
// A call made at the very end of `key_memory` may arrive after the foreign API has forgotten the key: this share of it
// is kept free.
constexpr int kMemoryMarginShare = 24;

Time expiry_of(const OperationRow& row, const RunnerOptions& options) {
  const Millis retention = options.policy.retention;
  return std::max(row.first_received + retention, row.now + std::min(options.late_answer_kept, retention));
}

// Fields that frame a message belong to the server, and the mark of a replay to the library.
constexpr std::string_view kNotThePhases[] = {
    "Connection", "Content-Length", "Idempotent-Replayed", "Keep-Alive", "TE", "Transfer-Encoding",
    "Trailer",    "Upgrade"};

bool is_token(std::string_view text) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~";
  return !text.empty() && text.find_first_not_of(kAllowed) == std::string_view::npos;
}

bool has_control_characters(std::string_view text) {
  return std::ranges::any_of(text,
                             [](char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f; });
}

// Why this response cannot be kept, or nothing if it can: it goes on the wire and into the record as it is.
std::optional<std::string> why_not_kept(const StoredResponse& response) {
  if (has_control_characters(response.reason)) return "the response's reason has a line break or a control character";
  for (std::size_t i = 0; i < response.headers.size(); ++i) {
    const Field field = response.headers[i];
    if (!is_token(field.name)) {
      return fmt::format("the response has a header named \"{}\", which is not a valid header name",
                         as_utf8(field.name));
    }
    if (has_control_characters(field.value)) {
      return fmt::format("the response's header {} has a line break or a control character", field.name);
    }
    for (const std::string_view name : kNotThePhases) {
      if (equal_ignoring_case(field.name, name)) {
        return fmt::format("the response has a header {}, which the server or the library sets: leave it out", name);
      }
    }
  }
  return std::nullopt;
}

} // namespace

OperationRun::OperationRun(const RunnerParts& parts, const Operation& operation, SessionSource& sessions,
                           OperationRow row)
    : parts_(parts),
      operation_(operation),
      sessions_(sessions),
      row_(std::move(row)),
      expires_at_(expiry_of(row_, parts.options)),
      bucket_(bucket_of(expires_at_, parts.options.policy.retention)),
      bucket_name_(to_string(bucket_)),
      insert_for_sqlite_(insert_answer_sqlite(bucket_table(BucketKind::answer, bucket_))) {}

// The database's clock without asking it: its value at the claim, and the time that has passed here since.
Time OperationRun::now() const {
  return row_.now + std::chrono::duration_cast<Millis>(std::chrono::steady_clock::now() - claimed_at_);
}

Result<OperationRun::End> OperationRun::run() {
  try {
    auto end = run_steps();
    if (!end.ok() || std::holds_alternative<Conflict>(end.value())) give_up_lease();
    return end;
  } catch (...) {
    give_up_lease();
    throw;
  }
}

Result<OperationRun::End> OperationRun::run_steps() {
  const auto start = operation_.step_at(row_.recovery_point);
  ONCEKEY_CHECK(start.has_value(), "a run begins at a step that is there");
  at_ = *start;
  // The table that will hold the answer is there before the first step: no phase creates tables.
  if (auto ready = parts_.engine.ensure_bucket(BucketKind::answer, bucket_); !ready.ok()) {
    return std::move(ready).fault();
  }
  for (int steps = 0; steps < kStepsMax; ++steps) {
    auto end = step(operation_.steps()[at_]);
    if (!end.ok()) return std::move(end).fault();
    if (end.value()) return std::move(*end.value());
  }
  return invalid(fmt::format("operation {} made {} steps in one run", operation_.name(), kStepsMax));
}

// Tells the application's observer how the part of the step went, also if it threw.
template <class Run>
auto OperationRun::observed(const Operation::Step& step, StepEvent::Part part, const Run& run) const {
  using enum StepEvent::Moment;
  const auto begun = std::chrono::steady_clock::now();
  const auto observe = [&](StepEvent::Moment moment, std::chrono::steady_clock::duration duration) {
    if (!parts_.options.on_step) return;
    parts_.options.on_step({operation_.name(), row_.id, step.recovery_point, step.rules.label, part, moment, duration});
  };
  observe(began, {});
  try {
    auto result = run();
    bool done = true;
    if constexpr (requires { result->end; }) done = result.ok() && result->end;
    observe(done ? ended : failed, std::chrono::steady_clock::now() - begun);
    return result;
  } catch (...) {
    observe(threw, std::chrono::steady_clock::now() - begun);
    throw;
  }
}

// What ends the run, or nothing when there is a next step.
Result<std::optional<OperationRun::End>> OperationRun::step(const Operation::Step& step) {
  std::any outcome;
  if (step.call) {
    if (const auto why = memory_over(step)) {
      auto buried = dead_letter(*why);
      if (!buried.ok()) return std::move(buried).fault();
      return std::optional<End>(std::move(buried).value());
    }
    outcome = observed(step, StepEvent::Part::call, [&] { return call(step); });
  }
  auto result = observed(step, StepEvent::Part::phase, [&] { return phase(step, outcome); });
  if (!result.ok()) {
    if (result.fault().kind != FaultKind::conflict) return std::move(result).fault();
    ++parts_.counters.conflicts;
    return std::optional<End>(Conflict{});
  }
  if (!result->end) {
    ++parts_.counters.leases_lost;
    return std::optional<End>(Lost{});
  }
  row_.fence += 1; // as the end of the phase has done in the row
  row_.notes = std::move(result->notes);
  if (auto* const respond = std::get_if<Respond>(&*result->end)) {
    return std::optional<End>(Finished{std::move(respond->response), false});
  }
  if (const auto* const next = std::get_if<NextPoint>(&*result->end)) {
    at_ = *operation_.step_at(next->recovery_point);
    row_.recovery_point = next->recovery_point;
    row_.reached_at = now();
  } else {
    ++at_;
  }
  return std::optional<End>{};
}

std::optional<std::string> OperationRun::memory_over(const Operation::Step& step) const {
  const Millis memory = step.rules.key_memory;
  if (now() - row_.reached_at < memory - memory / kMemoryMarginShare) return std::nullopt;
  return fmt::format(
      "The foreign API may have forgotten the key of the call '{}', which may have been made {} minutes ago: look "
      "there whether it happened. Only if it did not, restart the operation with --confirmed-not-executed "
      "(ForeignSide::looked_at); without it the call is not made again.",
      step.rules.label, std::chrono::duration_cast<std::chrono::minutes>(now() - row_.reached_at).count());
}

// A crash here leaves the lease; the next owner makes the same call with the same key.
std::any OperationRun::call(const Operation::Step& step) {
  // The key depends on the operation's identity and the label alone: it is the same on every attempt.
  const CallKeeper::Watch watch(parts_.keeper, row_.id, row_.fence);
  return step.call(ForeignCall(derive(row_.identity, step.rules.label), row_.request, row_.notes));
}

// Runs the phase again after serialization failures, with the same outcome of the call: the call is not repeated.
Result<OperationRun::PhaseResult> OperationRun::phase(const Operation::Step& step, const std::any& outcome) {
  ConflictBudget budget(parts_.options.conflict_budget);
  for (;;) {
    auto result = sessions_.with<PhaseResult>([&](Session& session) { return phase_once(session, step, outcome); });
    if (result.ok() || result.fault().kind != FaultKind::conflict || !budget.wait()) return result;
    ++parts_.counters.phases_repeated;
  }
}

Result<OperationRun::PhaseResult> OperationRun::phase_once(Session& session, const Operation::Step& step,
                                                           const std::any& outcome) {
  // The row stays locked until the end of the transaction: a run that wants to take over waits, or skips it.
  const Command lock = lock_owned(session.dialect(), row_.id, row_.fence);
  auto begun = session.begin(Isolation::serializable, Guard::commands, {&lock, 1});
  if (!begun.ok()) return std::move(begun).fault();
  const auto transaction = owning_transaction(begun.value()[0]);
  if (!transaction) { // another run has taken over: nothing was changed
    session.rollback();
    return PhaseResult{};
  }
  Phase phase(session, row_.request, row_.notes);
  PhaseEnd end;
  if (auto ran = run_code(session, [&] { end = step.run(phase, outcome); }); !ran.ok()) return std::move(ran).fault();
  if (auto good = check_end(phase, end); !good.ok()) {
    session.rollback();
    return std::move(good).fault();
  }
  return end_phase(session, *transaction, phase, std::move(end));
}

// What a phase must not return. Checked before the commit, so that a mistake changes nothing.
Status OperationRun::check_end(const Phase& phase, const PhaseEnd& end) const {
  const auto wrong = [&](std::string_view what) {
    return invalid(
        fmt::format("operation {}, phase at {}: {}", operation_.name(), operation_.steps()[at_].recovery_point, what));
  };
  if (const auto* const next = std::get_if<NextPoint>(&end)) {
    if (!operation_.step_at(next->recovery_point)) {
      return wrong(fmt::format("no step starts at the recovery point {}", next->recovery_point));
    }
  } else if (const auto* const respond = std::get_if<Respond>(&end)) {
    const StoredResponse& response = respond->response;
    if (response.status < 200 || response.status > 599)
      return wrong(fmt::format("the status of the response must be from 200 to 599 (got {})", response.status));
    if (const auto why = why_not_kept(response)) return wrong(*why);
    if (response.body.size() > kBodyBytesMax) return wrong("the response's body is too long to keep");
    if (response.headers.lines().size() > kHeaderBytesMax) return wrong("the response's headers are too long to keep");
  } else if (at_ + 1 >= operation_.steps().size()) {
    return wrong("the last step must end in a response or a recovery point");
  }
  if (encode_notes(phase.notes()).size() > kNotesBytesMax)
    return wrong(fmt::format("the notes have more than {} bytes together (kNotesBytesMax)", kNotesBytesMax));
  return ok_status();
}

// The row has been locked since the transaction began, so that it is unchanged when the phase ends.
Result<OperationRun::PhaseResult> OperationRun::end_phase(Session& session, std::int64_t transaction,
                                                          const Phase& phase, PhaseEnd end) {
  const OwnedRow owned{row_.id, row_.fence, transaction};
  const std::string notes = encode_notes(phase.notes());
  std::string response;
  std::vector<Command> commands;
  if (auto* const respond = std::get_if<Respond>(&end)) {
    const std::string request_id = fmt::format("req_{}", random_uuid());
    respond->response = to_store(parts_.policy, std::move(respond->response), {row_.request.key, request_id, {}});
    encode_response(respond->response, response);
    commands = finish(session.dialect(), owned, {expires_at_, response, bucket_name_, insert_for_sqlite_});
  } else {
    const auto* const next = std::get_if<NextPoint>(&end);
    const auto point = next ? std::optional<std::string_view>(next->recovery_point) : std::nullopt;
    commands.push_back(move_on(session.dialect(), owned, point, notes, parts_.options.lease));
  }
  if (auto ended = end_with_jobs(session, phase, commands); !ended.ok()) {
    // The reason may be that the answer's bucket is gone: the engine asks the database again before the next run.
    if (ended.fault().kind != FaultKind::conflict) parts_.engine.distrust_buckets();
    return std::move(ended).fault();
  }
  return PhaseResult{std::move(end), phase.notes()};
}

Result<OperationRun::End> OperationRun::dead_letter(const std::string& why) {
  return sessions_.with<End>([&](Session& session) -> Result<End> {
    auto rows = session.transact_one(bury(row_.id, row_.fence, why));
    if (!rows.ok()) return std::move(rows).fault();
    if (rows->changed == 0) return End(Lost{});
    ++parts_.counters.dead_lettered;
    return End(DeadLettered{why});
  });
}

// If that fails, the lease runs out by itself. A database that hangs is not asked: another connection of the
// application's pool would hang as long again. The row may have another fence because of a commit of this run whose
// answer was lost.
void OperationRun::give_up_lease() {
  const auto given_up = [&](Session& session) -> Result<bool> {
    auto rows = session.transact_one(give_lease_up(row_.id, row_.fence));
    if (!rows.ok()) return std::move(rows).fault();
    return rows->changed == 1;
  };
  if (!sessions_.timed_out()) {
    if (const auto done = sessions_.with<bool>(given_up); done.ok() && *done) return;
  }
  parts_.broken_off.remember(row_.id, row_.fence);
}

} // namespace oncekey::phases
