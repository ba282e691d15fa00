#include "store/postgres/single_calls.h"

#include "core/record_codec.h"

#include <oncekey/check.h>

#include <initializer_list>
#include <utility>

namespace oncekey::postgres {
namespace {

// Of a job: the moment and all of oncekey.job; the message stands behind them.
constexpr int kJobColumns = 20;

Result<FoundJob> found_job(const Row& row) {
  Result<StoredJob> job = job_of(row);
  if (!job) return std::move(job).fault();
  FoundJob found{*std::move(job), {}, time_at(row, 0)};
  if (row.is_null(kJobColumns)) return found;
  Result<Message> message = decode_message(row.bytes(kJobColumns));
  if (message) {
    found.message = *std::move(message);
  } else {
    found.unreadable = std::move(message).fault();
  }
  return found;
}

template <class T>
std::optional<Result<T>> numbered(const PGresult* result, std::initializer_list<T> answers) {
  const auto number = static_cast<std::size_t>(Row(result, 0).int2(0));
  if (number < 1 || number > answers.size()) return std::nullopt;
  const T answer = answers.begin()[number - 1];
  return answer;
}

} // namespace

Result<StoredJob> job_of(const Row& row) {
  // The columns of oncekey.job, behind the first one of the row.
  enum JobColumn : int {
    job_id = 1,
    job_place,
    job_queue,
    job_behind,
    job_state,
    job_message_kept,
    job_fence,
    job_attempts,
    job_staged_at,
    job_due_at,
    job_ended_at,
    job_expires_at,
    job_last_at,
    job_last_status,
    job_last_reason,
    job_why_dead,
    job_fingerprint,
    job_route,
    job_key,
  };
  StoredJob job;
  const std::int16_t state = row.int2(job_state);
  const bool well_formed = copy_exactly(row.bytes(job_id), job.id.bytes) &&
                           copy_exactly(row.bytes(job_fingerprint), job.fingerprint.bytes) &&
                           state >= static_cast<int>(JobState::waiting) && state <= static_cast<int>(JobState::dead);
  if (!well_formed) return corrupt("a row of oncekey.job does not have the shape of a job");
  job.state = static_cast<JobState>(state);
  job.ordered = !row.is_null(job_queue);
  job.message_kept = row.boolean(job_message_kept);
  job.fence = static_cast<std::uint64_t>(row.int8(job_fence));
  job.attempts = static_cast<std::uint32_t>(row.int8(job_attempts));
  job.staged_at = time_at(row, job_staged_at);
  job.due_at = time_at(row, job_due_at);
  job.ended_at = time_at(row, job_ended_at);
  job.expires_at = time_at(row, job_expires_at);
  job.last_at = time_at(row, job_last_at);
  job.last = {row.int4(job_last_status), std::string(row.bytes(job_last_reason))};
  job.why_dead = row.bytes(job_why_dead);
  job.route = row.bytes(job_route);
  job.key = row.bytes(job_key);
  return job;
}

Statement statement_of(const OperatorCall& call, const SqlTerms& terms) {
  const auto action = [&]() -> std::int16_t {
    switch (call.action) {
      case OperatorAction::release:
        return 1;
      case OperatorAction::complete:
        return 2;
      case OperatorAction::rerun:
        return 3;
    }
    ONCEKEY_CHECK(false, "every action of an operator has its number");
    return 0;
  }();
  Statement statement{"SELECT oncekey.operate($1, $2, $3, $4, $5, $6)", {}};
  statement.params.int8(terms.skew.count()).int8(lock_of(call.id)).bytes(view_of(call.id)).int2(action);
  statement.params.bytes(encoded(call.response)).boolean(is_partial(call.response));
  return statement;
}

Statement statement_of(const StageCall& call, const SqlTerms& terms) {
  const StageRequest& request = call.request;
  Statement statement{"SELECT answer, known FROM oncekey.stage($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)", {}};
  statement.params.text(terms.marker.generation).int8(static_cast<std::int64_t>(terms.marker.tick));
  statement.params.int8(terms.skew.count()).bytes(view_of(request.id)).bytes(view_of(request.fingerprint));
  statement.params.text(as_text(request.route, terms.encoding)).text(as_text(request.key, terms.encoding));
  statement.params.boolean(request.ordered).int8(request.delay.count()).int8(request.retention.count());
  std::string message;
  encode_message(request.message, message);
  statement.params.bytes(message);
  return statement;
}

Statement statement_of(const TakeCall& call, const SqlTerms& terms) {
  const TakeRequest& request = call.request;
  Statement statement{"SELECT moment, (job).*, message FROM oncekey.take($1, $2, $3, $4, $5::int4, $6, $7)", {}};
  statement.params.text(terms.marker.generation).int8(static_cast<std::int64_t>(terms.marker.tick));
  statement.params.int8(terms.skew.count()).text(as_text(request.route, terms.encoding));
  statement.params.int8(static_cast<std::int64_t>(request.limit)).int8(request.lease.count());
  statement.params.int8(request.overdue.count());
  return statement;
}

Statement statement_of(const AttemptCall& call, const SqlTerms& terms) {
  const AttemptEnd& end = call.end;
  const auto kind = [&]() -> std::int16_t {
    switch (end.kind) {
      case AttemptEnd::Kind::delivered:
        return 1;
      case AttemptEnd::Kind::again:
        return 2;
      case AttemptEnd::Kind::dead:
        return 3;
    }
    ONCEKEY_CHECK(false, "every end of an attempt has its number");
    return 0;
  }();
  const AttemptResult result = end.result.value_or(AttemptResult{});
  Statement statement{"SELECT oncekey.end_attempt($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)", {}};
  statement.params.int8(terms.skew.count()).bytes(view_of(call.owner.id));
  statement.params.int8(static_cast<std::int64_t>(call.owner.fence)).int2(kind).boolean(end.result.has_value());
  statement.params.int4(result.status).text(as_text(result.reason, terms.encoding)).int8(end.pause.count());
  statement.params.text(as_text(end.why_dead, terms.encoding)).boolean(end.keep_message);
  return statement;
}

Statement statement_of(const FindJobCall& call, const SqlTerms& terms) {
  Statement statement{"SELECT moment, (job).*, message FROM oncekey.find_job($1, $2)", {}};
  statement.params.int8(terms.skew.count()).bytes(view_of(call.id));
  return statement;
}

Statement statement_of(const JobOperatorCall& call, const SqlTerms& terms) {
  Statement statement{"SELECT oncekey.operate_job($1, $2, $3)", {}};
  statement.params.int8(terms.skew.count()).bytes(view_of(call.id));
  statement.params.int2(call.action == JobAction::retry ? 1 : 2);
  return statement;
}

std::optional<Result<OperatorAnswer>> answer_of(const OperatorCall&, const PGresult* result) {
  return numbered<OperatorAnswer>(
      result, {OperatorAnswer::done, OperatorAnswer::absent, OperatorAnswer::live, OperatorAnswer::completed});
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
  for (int at = 0; at < PQntuples(result); ++at) {
    Result<FoundJob> found = found_job(Row(result, at));
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
  return numbered<FenceAnswer>(result, {FenceAnswer::done, FenceAnswer::lost});
}

std::optional<Result<std::optional<FoundJob>>> answer_of(const FindJobCall&, const PGresult* result) {
  if (PQntuples(result) == 0) return std::optional<FoundJob>();
  Result<FoundJob> found = found_job(Row(result, 0));
  if (!found) return std::move(found).fault();
  return std::optional<FoundJob>(*std::move(found));
}

std::optional<Result<JobAnswer>> answer_of(const JobOperatorCall&, const PGresult* result) {
  return numbered<JobAnswer>(
      result, {JobAnswer::done, JobAnswer::absent, JobAnswer::taken, JobAnswer::over, JobAnswer::message_gone});
}

} // namespace oncekey::postgres
