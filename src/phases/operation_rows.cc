#include "phases/operation_rows.h"

#include "core/record_codec.h"
#include "phases/notes.h"

#include <fmt/format.h>

#include <algorithm>

namespace oncekey::phases {
namespace {

#define ONCEKEY_COLUMNS                                                                                             \
  "id, fingerprint, operation, recovery_point, fence, lease_until, identity, notes, principal, key, method, path, " \
  "body, content_type, first_received, reached_at, attempts, dead_at, last_error, {now}"

constexpr std::string_view kFindOperation = "SELECT " ONCEKEY_COLUMNS " FROM oncekey_operation WHERE id = $1";
constexpr std::string_view kFindAnswer =
    "SELECT fingerprint, operation, response FROM oncekey_answer WHERE id = $1 AND expires_at > {now}";

// The fence starts at the clock, so that it has grown past every owner's of an earlier life of the same key.
constexpr std::string_view kInsertSqlite =
    "INSERT INTO oncekey_operation (id, fingerprint, operation, recovery_point, fence, lease_until, identity, notes,"
    " principal, key, method, path, body, content_type, first_received, reached_at, attempts, next_attempt_at,"
    " last_error)"
    " SELECT $1, $2, $3, $4, {now}, {now} + $5, $6, x'', $7, $8, $9, $10, $11, $12, {now}, {now}, 0, 0, ''"
    " WHERE NOT EXISTS (SELECT 1 FROM oncekey_answer WHERE id = $1 AND expires_at > {now})"
    " ON CONFLICT (id) DO NOTHING";
constexpr std::string_view kUndoIfAnsweredSqlite =
    "DELETE FROM oncekey_operation WHERE id = $1 AND identity = $2"
    " AND EXISTS (SELECT 1 FROM oncekey_answer WHERE id = $1 AND expires_at > {now})";

// The new fence is at least the clock, as for a first claim: after a failover that lost a takeover, the next takeover
// gets another number. $4 is 1 for an owner whose run was broken off by the database: its own live lease does not stop
// it.
constexpr std::string_view kTakeOver =
    "UPDATE oncekey_operation SET fence = CASE WHEN fence < {now} THEN {now} ELSE fence + 1 END,"
    " lease_until = {now} + $3 WHERE id = ("
    " SELECT id FROM oncekey_operation WHERE id = $1 AND fence = $2 AND (lease_until <= {now} OR $4 = 1)"
    " AND dead_at IS NULL {skip_locked}) RETURNING " ONCEKEY_COLUMNS;

constexpr std::string_view kLockOwnedSqlite = "SELECT 1 FROM oncekey_operation WHERE id = $1 AND fence = $2";
constexpr std::string_view kMoveOnSqlite =
    "UPDATE oncekey_operation SET fence = fence + 1, recovery_point = $3, notes = $4, lease_until = {now} + $5,"
    " reached_at = {now} WHERE id = $1 AND fence = $2";
constexpr std::string_view kStaySqlite =
    "UPDATE oncekey_operation SET fence = fence + 1, notes = $4, lease_until = {now} + $5"
    " WHERE id = $1 AND fence = $2";
constexpr std::string_view kRemoveFinishedSqlite = "DELETE FROM oncekey_operation WHERE id = $1 AND fence = $2";
// OR REPLACE: a key that was used, expired and was used again within one bucket is in it already.
constexpr std::string_view kInsertAnswerSqlite =
    "INSERT OR REPLACE INTO {} (id, fingerprint, operation, fence, first_received, finished_at, expires_at, response)"
    " VALUES ($1, $2, $3, $4, $5, {{now}}, $6, $7)";

// Each of them is a function of the schema, src/phases/schema/postgres.sql.
constexpr std::string_view kClaimPostgres =
    "SELECT oncekey_claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, {now})";
constexpr std::string_view kLockOwnedPostgres = "SELECT oncekey_own($1, $2)";
constexpr std::string_view kMoveOnPostgres = "SELECT oncekey_move_on($1, $2, $3, $4, $5, $6, {now})";
constexpr std::string_view kFinishPostgres = "SELECT oncekey_finish($1, $2, $3, $4, $5, $6, {now})";

constexpr std::string_view kRenewLease =
    "UPDATE oncekey_operation SET lease_until = {now} + $3 WHERE id = $1 AND fence = $2 AND lease_until > 0";
constexpr std::string_view kGiveLeaseUp = "UPDATE oncekey_operation SET lease_until = 0 WHERE id = $1 AND fence = $2";
constexpr std::string_view kBury =
    "UPDATE oncekey_operation SET dead_at = {now}, last_error = $3, lease_until = 0, fence = fence + 1"
    " WHERE id = $1 AND fence = $2";

Bytes bytes_of(const RecordId& id) { return {as_bytes(id.bytes)}; }

template <class D>
Result<D> digest_of(const std::string& bytes) {
  D digest;
  if (bytes.size() != digest.bytes.size())
    return corrupt("an id or fingerprint in the database does not have 32 bytes");
  std::copy(bytes.begin(), bytes.end(), digest.bytes.begin());
  return digest;
}

Time time_of(const SqlRow& row, std::size_t column) { return Time{Millis{row.integer(column)}}; }

Result<AnswerRow> answer_of_row(const SqlRow& row) {
  AnswerRow answer;
  auto fingerprint = digest_of<Fingerprint>(row.text(0));
  if (!fingerprint.ok()) return std::move(fingerprint).fault();
  auto response = decode_response(row.text(2));
  if (!response.ok()) return std::move(response).fault();
  answer.fingerprint = *fingerprint;
  answer.operation = row.text(1);
  answer.response = std::move(response).value();
  return answer;
}

Result<KeyRows> found_in(const SqlRows& operations, const SqlRows& answers) {
  KeyRows found;
  if (!answers.rows.empty()) {
    auto answer = answer_of_row(answers.rows[0]);
    if (!answer.ok()) return std::move(answer).fault();
    found.answer = std::move(answer).value();
  } else if (!operations.rows.empty()) {
    auto operation = operation_of_row(operations.rows[0]);
    if (!operation.ok()) return std::move(operation).fault();
    found.operation = std::move(operation).value();
  }
  return found;
}

} // namespace

Result<OperationRow> operation_of_row(const SqlRow& row) {
  OperationRow operation;
  auto id = digest_of<RecordId>(row.text(0));
  if (!id.ok()) return std::move(id).fault();
  auto fingerprint = digest_of<Fingerprint>(row.text(1));
  if (!fingerprint.ok()) return std::move(fingerprint).fault();
  auto notes = decode_notes(row.text(7));
  if (!notes.ok()) return std::move(notes).fault();
  operation.id = *id;
  operation.fingerprint = *fingerprint;
  operation.recovery_point = row.text(3);
  operation.fence = row.integer(4);
  operation.lease_until = time_of(row, 5);
  operation.identity = row.text(6);
  operation.notes = std::move(notes).value();
  OperationRequest& request = operation.request;
  request.operation = row.text(2);
  request.principal = row.text(8);
  request.key = row.text(9);
  request.method = row.text(10);
  request.path = row.text(11);
  request.body = row.text(12);
  request.content_type = row.text(13);
  operation.first_received = time_of(row, 14);
  operation.reached_at = time_of(row, 15);
  operation.attempts = static_cast<int>(row.integer(16));
  if (!row.is_null(17)) operation.dead_at = time_of(row, 17);
  operation.last_error = row.text(18);
  operation.now = time_of(row, 19);
  return operation;
}

UnfinishedOperation unfinished_of(const OperationRow& row) {
  return {.id = row.id,
          .operation = row.request.operation,
          .recovery_point = row.recovery_point,
          .principal = row.request.principal,
          .key = row.request.key,
          .method = row.request.method,
          .path = row.request.path,
          .first_received = row.first_received,
          .reached_at = row.reached_at,
          .attempts = row.attempts,
          .last_error = row.last_error};
}

Result<KeyRows> find_key(Session& session, const RecordId& id) {
  const Command commands[] = {{kFindOperation, {bytes_of(id)}}, {kFindAnswer, {bytes_of(id)}}};
  auto rows = session.run(commands);
  if (!rows.ok()) return std::move(rows).fault();
  return found_in(rows.value()[0], rows.value()[1]);
}

namespace {

OperationRow claimed_row(const NewOperation& fresh, const OperationRequest& request, std::int64_t now) {
  OperationRow row;
  row.id = fresh.id;
  row.fingerprint = fresh.fingerprint;
  row.recovery_point = fresh.recovery_point;
  row.fence = now;
  row.identity = fresh.identity;
  row.request = request;
  row.request.compared.reset(); // not kept in the row: the first run must see no more than a later one
  row.now = row.first_received = row.reached_at = Time{Millis{now}};
  row.lease_until = row.now + fresh.lease;
  return row;
}

} // namespace

Result<KeyRows> claim_new(Session& session, const NewOperation& fresh, const OperationRequest& request) {
  const Bytes id = bytes_of(fresh.id);
  const Bytes identity{fresh.identity};
  const bool postgres = session.dialect() == Dialect::postgres;
  const Command claim{
      postgres ? kClaimPostgres : kInsertSqlite,
      {id, Bytes{as_bytes(fresh.fingerprint.bytes)}, std::string_view(request.operation),
       std::string_view(fresh.recovery_point), std::int64_t{fresh.lease.count()}, identity,
       std::string_view(request.principal), std::string_view(request.key), std::string_view(request.method),
       std::string_view(request.path), Bytes{request.body}, std::string_view(request.content_type)}};
  if (!postgres) {
    const Command commands[] = {
        claim, {kUndoIfAnsweredSqlite, {id, identity}}, {kFindOperation, {id}}, {kFindAnswer, {id}}};
    auto rows = session.transact(Isolation::read_committed, commands);
    if (!rows.ok()) return std::move(rows).fault();
    return found_in(rows.value()[2], rows.value()[3]);
  }
  auto rows = session.transact_one(claim);
  if (!rows.ok()) return std::move(rows).fault();
  const SqlRow& row = rows->rows.at(0);
  if (row.is_null(0)) return find_key(session, fresh.id);
  KeyRows claimed;
  claimed.operation = claimed_row(fresh, request, row.integer(0));
  return claimed;
}

Result<std::optional<OperationRow>> take_over(Session& session, const RecordId& id, std::int64_t fence, Millis lease,
                                              Whose whose) {
  const std::int64_t own = whose == Whose::own ? 1 : 0;
  auto rows = session.transact_one({kTakeOver, {bytes_of(id), fence, std::int64_t{lease.count()}, own}});
  if (!rows.ok()) return std::move(rows).fault();
  if (rows->rows.empty()) return std::optional<OperationRow>{};
  auto operation = operation_of_row(rows->rows[0]);
  if (!operation.ok()) return std::move(operation).fault();
  return std::optional<OperationRow>(std::move(operation).value());
}

Command lock_owned(Dialect dialect, const RecordId& id, std::int64_t fence) {
  return {dialect == Dialect::postgres ? kLockOwnedPostgres : kLockOwnedSqlite, {bytes_of(id), fence}};
}

std::optional<std::int64_t> owning_transaction(const SqlRows& locked) {
  if (locked.rows.empty() || locked.rows[0].is_null(0)) return std::nullopt;
  return locked.rows[0].integer(0);
}

Command move_on(Dialect dialect, const OwnedRow& owned, std::optional<std::string_view> recovery_point,
                std::string_view notes, Millis lease) {
  const SqlValue point = recovery_point ? SqlValue(*recovery_point) : SqlValue(nullptr);
  if (dialect == Dialect::postgres) {
    return {kMoveOnPostgres,
            {bytes_of(owned.id), owned.fence, owned.transaction, point, Bytes{notes}, std::int64_t{lease.count()}}};
  }
  return {recovery_point ? kMoveOnSqlite : kStaySqlite,
          {bytes_of(owned.id), owned.fence, point, Bytes{notes}, std::int64_t{lease.count()}},
          Changes::exactly_one};
}

std::string insert_answer_sqlite(std::string_view bucket_table) {
  return fmt::format(fmt::runtime(kInsertAnswerSqlite), bucket_table);
}

std::vector<Command> finish(Dialect dialect, const OwnedRow& owned, const NewAnswer& answer) {
  const std::int64_t expires_at = answer.expires_at.time_since_epoch().count();
  if (dialect == Dialect::postgres) {
    return {{kFinishPostgres,
             {bytes_of(owned.id), owned.fence, owned.transaction, expires_at, Bytes{answer.response}, answer.bucket}}};
  }
  return {{kRemoveFinishedSqlite, {bytes_of(owned.id), owned.fence}, Changes::exactly_one},
          {answer.insert_for_sqlite,
           {bytes_of(owned.id), Bytes{as_bytes(answer.fingerprint.bytes)}, answer.operation, owned.fence,
            std::int64_t{answer.first_received.time_since_epoch().count()}, expires_at, Bytes{answer.response}}}};
}

Command renew_lease(const RecordId& id, std::int64_t fence, Millis lease) {
  return {kRenewLease, {bytes_of(id), fence, std::int64_t{lease.count()}}};
}

Command give_lease_up(const RecordId& id, std::int64_t fence) { return {kGiveLeaseUp, {bytes_of(id), fence}}; }

Command bury(const RecordId& id, std::int64_t fence, std::string_view why) {
  return {kBury, {bytes_of(id), fence, why}};
}

// The pick itself counts the attempt and puts the next one off: no other completer picks the operation meanwhile, and
// an attempt that kills its completer is counted.
const std::string_view kPickAbandoned =
    "UPDATE oncekey_operation SET attempts = attempts + 1, next_attempt_at = {now} + {at $2 attempts}"
    " WHERE id = (SELECT id FROM oncekey_operation WHERE (first_received, id) > ($3, $4)"
    " AND first_received <= (SELECT {now}) - $1 AND lease_until <= (SELECT {now})"
    " AND next_attempt_at <= (SELECT {now}) AND dead_at IS NULL AND operation {in_texts $5}"
    " ORDER BY first_received, id LIMIT 1 {skip_locked}) RETURNING " ONCEKEY_COLUMNS;

const std::string_view kNoteError = "UPDATE oncekey_operation SET last_error = $2 WHERE id = $1";
const std::string_view kNoAttempt =
    "UPDATE oncekey_operation SET last_error = $2, attempts = attempts - 1 WHERE id = $1 AND attempts = $3";
const std::string_view kBuryUnowned =
    "UPDATE oncekey_operation SET dead_at = {now}, last_error = $2, attempts = $3, fence = fence + 1"
    " WHERE id = $1 AND lease_until <= {now} AND dead_at IS NULL";
const std::string_view kListDead =
    "SELECT " ONCEKEY_COLUMNS " FROM oncekey_operation WHERE dead_at IS NOT NULL ORDER BY dead_at LIMIT $1";
const std::string_view kRestartDead =
    "UPDATE oncekey_operation SET dead_at = NULL, attempts = 0, next_attempt_at = {now},"
    " lease_until = 0, fence = fence + 1 WHERE id = $1 AND dead_at IS NOT NULL";
// As if the operation had reached its recovery point now: foreign calls may be made once more.
const std::string_view kRestartDeadLookedAt =
    "UPDATE oncekey_operation SET dead_at = NULL, attempts = 0, next_attempt_at = {now}, reached_at = {now},"
    " lease_until = 0, fence = fence + 1 WHERE id = $1 AND dead_at IS NOT NULL";

#undef ONCEKEY_COLUMNS

} // namespace oncekey::phases
