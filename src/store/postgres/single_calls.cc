#include "store/postgres/single_calls.h"

#include "core/attempt_lines.h"
#include "core/record_codec.h"

#include <oncekey/check.h>

#include <cstring>

namespace oncekey::postgres {
namespace {

// Of a job: the moment and all of oncekey.job; the message stands behind them.
constexpr int kJobColumns = 18;

Result<FoundJob> found_job(const Row& row) {
  Result<StoredJob> job = job_of(row);
  if (!job) return std::move(job).fault();
  FoundJob found{*std::move(job), {}, row.time(0)};
  if (row.is_null(kJobColumns)) return found;
  Result<Message> message = decode_message(row.bytes(kJobColumns));
  if (message) {
    found.message = *std::move(message);
  } else {
    found.unreadable = std::move(message).fault();
  }
  return found;
}

// The schema's functions count actions and answers from one, in the order of the enumerators.
constexpr std::int16_t sql_number(auto enumerator) {
  return static_cast<std::int16_t>(static_cast<int>(enumerator) + 1);
}
static_assert(sql_number(OperatorAction::release) == 1 && sql_number(OperatorAction::hold) == 4);
static_assert(sql_number(AttemptEnd::Kind::delivered) == 1 && sql_number(AttemptEnd::Kind::dead) == 3);
static_assert(sql_number(JobAction::retry) == 1 && sql_number(JobAction::drop) == 2);

template <class T>
std::optional<Result<T>> numbered(const PGresult* result, T last) {
  const std::int16_t number = Row(result, 0).int2(0);
  if (number < 1 || number > sql_number(last)) return std::nullopt;
  return static_cast<T>(number - 1);
}

Statement statement_of(const OperatorCall& call, const SqlTerms& terms) {
  return Statement("SELECT oncekey.operate($1, $2, $3, $4, $5, $6)", terms.skew.count(), lock_of(call.id),
                   bytea_of(call.id), sql_number(call.action), encoded(call.response), call.response.unfinished());
}

Statement statement_of(const StageCall& call, const SqlTerms& terms) {
  const StageRequest& request = call.request;
  Bytea<std::string> message;
  encode_message(request.message, message.bytes);
  return Statement("SELECT answer, known FROM oncekey.stage($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
                   terms.marker.generation, static_cast<std::int64_t>(terms.marker.tick), terms.skew.count(),
                   bytea_of(request.id), bytea_of(request.fingerprint), as_text(request.route, terms.encoding),
                   as_text(request.key, terms.encoding), request.ordered, request.delay.count(),
                   request.retention.count(), message);
}

Statement statement_of(const TakeCall& call, const SqlTerms& terms) {
  const TakeRequest& request = call.request;
  return Statement("SELECT moment, (job).*, message FROM oncekey.take($1, $2, $3, $4, $5::int4, $6, $7)",
                   terms.marker.generation, static_cast<std::int64_t>(terms.marker.tick), terms.skew.count(),
                   as_text(request.route, terms.encoding), static_cast<std::int64_t>(request.limit),
                   request.lease.count(), request.overdue.count());
}

Statement statement_of(const AttemptCall& call, const SqlTerms& terms) {
  const AttemptEnd& end = call.end;
  static_assert(kAttemptsKept == 10, "as oncekey.end_attempt has it");
  const std::string attempt = end.result ? attempt_line(end.gateway, *end.result) : std::string();
  return Statement("SELECT oncekey.end_attempt($1, $2, $3, $4, $5, $6, $7, $8)", terms.skew.count(),
                   bytea_of(call.owner.id), static_cast<std::int64_t>(call.owner.fence), sql_number(end.kind),
                   as_text(attempt, terms.encoding), end.pause.count(), as_text(end.why_dead, terms.encoding),
                   end.keep_message);
}

Statement statement_of(const FindJobCall& call, const SqlTerms& terms) {
  return Statement("SELECT moment, (job).*, message FROM oncekey.find_job($1, $2)", terms.skew.count(),
                   bytea_of(call.id));
}

Statement statement_of(const JobOperatorCall& call, const SqlTerms& terms) {
  // A fence is never negative: -1 stands for a job that was not looked at.
  const JobSeen seen = call.seen.value_or(JobSeen{});
  const std::int64_t fence = call.seen ? static_cast<std::int64_t>(seen.fence) : -1;
  return Statement("SELECT oncekey.operate_seen_job($1, $2, $3, $4, $5)", terms.skew.count(), bytea_of(call.id),
                   sql_number(call.action), static_cast<std::int16_t>(seen.state), fence);
}

std::optional<Result<OperatorAnswer>> answer_of(const OperatorCall&, const PGresult* result) {
  return numbered(result, OperatorAnswer::completed);
}

std::optional<Result<StageAnswer>> answer_of(const StageCall&, const PGresult* result) {
  const Row row(result, 0);
  const std::int16_t number = row.int2(0);
  if (number != 1 && number != 2) return std::nullopt;
  StageAnswer answer{number == 1, {}};
  if (!copy_exactly(row.bytes(1), answer.fingerprint.bytes)) return corrupt("a job's fingerprint is too short");
  return answer;
}

std::optional<Result<std::vector<TakenJob>>> answer_of(const TakeCall&, const PGresult* result) {
  std::vector<TakenJob> taken;
  std::optional<Fault> failed;
  for (const Row row : rows_of(result)) {
    Result<FoundJob> found = found_job(row);
    if (!found) {
      failed = std::move(found).fault();
      continue;
    }
    if (!found->message && !found->unreadable) found->unreadable = corrupt("its message is gone");
    taken.push_back({std::move(found->job), std::move(found->message).value_or(Message{}), found->now,
                     std::move(found->unreadable)});
  }
  if (taken.empty() && failed) return *std::move(failed);
  return taken;
}

std::optional<Result<FenceAnswer>> answer_of(const AttemptCall&, const PGresult* result) {
  return numbered(result, FenceAnswer::lost);
}

std::optional<Result<std::optional<FoundJob>>> answer_of(const FindJobCall&, const PGresult* result) {
  if (PQntuples(result) == 0) return std::optional<FoundJob>();
  Result<FoundJob> found = found_job(Row(result, 0));
  if (!found) return std::move(found).fault();
  return std::optional<FoundJob>(*std::move(found));
}

std::optional<Result<JobAnswer>> answer_of(const JobOperatorCall&, const PGresult* result) {
  return numbered(result, JobAnswer::changed);
}

} // namespace

Result<StoredJob> job_of(const Row& row) {
  StoredJob job;
  int column = 1; // those of oncekey.job, in their order
  const bool has_id = copy_exactly(row.bytes(column++), job.id.bytes);
  ++column; // place
  job.ordered = !row.is_null(column++);
  ++column; // behind
  const std::int16_t state = row.int2(column++);
  job.message_kept = row.boolean(column++);
  job.fence = row.count(column++);
  job.attempts = static_cast<std::uint32_t>(row.int8(column++));
  for (Time* const time : {&job.staged_at, &job.due_at, &job.ended_at, &job.expires_at}) {
    *time = row.time(column++);
  }
  std::optional<std::vector<Attempt>> tried = decode_attempts(row.bytes(column++));
  job.why_dead = row.bytes(column++);
  const bool has_fingerprint = copy_exactly(row.bytes(column++), job.fingerprint.bytes);
  for (std::string* const text : {&job.route, &job.key}) *text = row.bytes(column++);
  const bool has_state = state >= static_cast<int>(JobState::waiting) && state <= static_cast<int>(JobState::dead);
  if (!has_id || !has_fingerprint || !has_state || !tried)
    return corrupt("a row of oncekey.job does not have the shape of a job");
  job.state = static_cast<JobState>(state);
  job.tried = *std::move(tried);
  return job;
}

std::int64_t lock_of(const RecordId& id) {
  std::int64_t lock;
  std::memcpy(&lock, id.bytes.data() + 8, sizeof lock);
  return lock;
}

Bytea<std::string> encoded(const StoredResponse& response) {
  Bytea<std::string> encoded;
  encode_response(response, encoded.bytes);
  return encoded;
}

Statement single_statement(const AnyCall& call, const SqlTerms& terms) {
  return std::visit(
      [&](const auto& single) -> Statement {
        if constexpr (requires { statement_of(single, terms); }) return statement_of(single, terms);
        ONCEKEY_CHECK(false, "claims, finds and fences are asked for in batches");
        return Statement(""); // never
      },
      call);
}

bool answer_single(AnyCall& call, const PGresult* result, PendingAnswers& pending) {
  return std::visit(
      [&](auto& single) {
        if constexpr (requires { answer_of(single, result); }) {
          auto answer = answer_of(single, result);
          if (answer) pending.add(single.done, *std::move(answer));
          return answer.has_value();
        }
        return false;
      },
      call);
}

} // namespace oncekey::postgres
