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
    "SELECT fingerprint, response FROM oncekey_answer WHERE id = $1 AND expires_at > {now}";

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

// The statements of an owner's phase, with the same values in both databases. Postgres' are functions of the schema,
// src/phases/schema/postgres.sql.
struct InBoth {
  std::string_view postgres;
  std::string_view sqlite;
  std::string_view in(Dialect dialect) const { return dialect == Dialect::postgres ? postgres : sqlite; }
};
constexpr InBoth kLockOwned{"SELECT oncekey_own($1, $2)",
                            "SELECT 1 FROM oncekey_operation WHERE id = $1 AND fence = $2"};
constexpr InBoth kMoveOn{
    "SELECT oncekey_move_on($1, $2, $3, $4, $5, $6, {now})",
    "UPDATE oncekey_operation SET fence = fence + 1, notes = $5, lease_until = {now} + $6,"
    " recovery_point = coalesce($4, recovery_point), reached_at = CASE WHEN $4 IS NULL THEN reached_at ELSE {now} END"
    " WHERE id = $1 AND fence = $2"};
constexpr std::string_view kFinishPostgres = "SELECT oncekey_finish($1, $2, $3, $4, $5, $6, {now})";
// OR REPLACE: a key that was used, expired and was used again within one bucket is in it already.
constexpr std::string_view kInsertAnswerSqlite =
    "INSERT OR REPLACE INTO {} (id, fingerprint, operation, fence, first_received, finished_at, expires_at, response)"
    " SELECT id, fingerprint, operation, fence, first_received, {{now}}, $4, $5 FROM oncekey_operation"
    " WHERE id = $1 AND fence = $2";
constexpr std::string_view kRemoveFinishedSqlite = "DELETE FROM oncekey_operation WHERE id = $1 AND fence = $2";

constexpr InBoth kClaim{
    "SELECT oncekey_claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, {now})",
    // The fence starts at the clock, so that it has grown past every owner's of an earlier life of the same key.
    "INSERT INTO oncekey_operation (id, fingerprint, operation, recovery_point, fence, lease_until, identity, notes,"
    " principal, key, method, path, body, content_type, first_received, reached_at, attempts, next_attempt_at,"
    " last_error)"
    " SELECT $1, $2, $3, $4, {now}, {now} + $5, $6, x'', $7, $8, $9, $10, $11, $12, {now}, {now}, 0, 0, ''"
    " WHERE NOT EXISTS (SELECT 1 FROM oncekey_answer WHERE id = $1 AND expires_at > {now})"
    " ON CONFLICT (id) DO NOTHING"};

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
  auto fingerprint = digest_of<Fingerprint>(row.text(0));
  if (!fingerprint.ok()) return std::move(fingerprint).fault();
  auto response = decode_response(row.text(1));
  if (!response.ok()) return std::move(response).fault();
  return AnswerRow{*fingerprint, std::move(response).value()};
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
      kClaim.in(session.dialect()),
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
  return {kLockOwned.in(dialect), {bytes_of(id), fence}};
}

std::optional<std::int64_t> owning_transaction(const SqlRows& locked) {
  if (locked.rows.empty() || locked.rows[0].is_null(0)) return std::nullopt;
  return locked.rows[0].integer(0);
}

Command move_on(Dialect dialect, const OwnedRow& owned, std::optional<std::string_view> recovery_point,
                std::string_view notes, Millis lease) {
  return {kMoveOn.in(dialect),
          {bytes_of(owned.id), owned.fence, owned.transaction,
           recovery_point ? SqlValue(*recovery_point) : SqlValue(nullptr), Bytes{notes}, std::int64_t{lease.count()}},
          Changes::exactly_one};
}

std::string insert_answer_sqlite(std::string_view bucket_table) {
  return fmt::format(fmt::runtime(kInsertAnswerSqlite), bucket_table);
}

std::vector<Command> finish(Dialect dialect, const OwnedRow& owned, const NewAnswer& answer) {
  const bool postgres = dialect == Dialect::postgres;
  std::vector<Command> commands{
      {postgres ? kFinishPostgres : answer.insert_for_sqlite,
       {bytes_of(owned.id), owned.fence, owned.transaction, std::int64_t{answer.expires_at.time_since_epoch().count()},
        Bytes{answer.response}, answer.bucket},
       Changes::exactly_one}};
  if (!postgres) commands.push_back({kRemoveFinishedSqlite, {bytes_of(owned.id), owned.fence}, Changes::exactly_one});
  return commands;
}

Command renew_lease(const RecordId& id, std::int64_t fence, Millis lease) {
  return {"UPDATE oncekey_operation SET lease_until = {now} + $3 WHERE id = $1 AND fence = $2 AND lease_until > 0",
          {bytes_of(id), fence, std::int64_t{lease.count()}}};
}

Command give_lease_up(const RecordId& id, std::int64_t fence) {
  return {"UPDATE oncekey_operation SET lease_until = 0 WHERE id = $1 AND fence = $2", {bytes_of(id), fence}};
}

Command bury(const RecordId& id, std::int64_t fence, std::string_view why) {
  return {
      "UPDATE oncekey_operation SET dead_at = {now}, last_error = $3, lease_until = 0, fence = fence + 1"
      " WHERE id = $1 AND fence = $2",
      {bytes_of(id), fence, why}};
}

// The pick itself counts the attempt and puts the next one off: no other completer picks the operation meanwhile, and
// an attempt that kills its completer is counted.
const std::string_view kPickAbandoned =
    "UPDATE oncekey_operation SET attempts = attempts + 1, next_attempt_at = {now} + {at $2 attempts}"
    " WHERE id = (SELECT id FROM oncekey_operation WHERE (first_received, id) > ($3, $4)"
    " AND first_received <= (SELECT {now}) - $1 AND lease_until <= (SELECT {now})"
    " AND next_attempt_at <= (SELECT {now}) AND dead_at IS NULL AND operation {in_texts $5}"
    " ORDER BY first_received, id LIMIT 1 {skip_locked}) RETURNING " ONCEKEY_COLUMNS;

const std::string_view kListDead =
    "SELECT " ONCEKEY_COLUMNS " FROM oncekey_operation WHERE dead_at IS NOT NULL ORDER BY dead_at LIMIT $1";

#undef ONCEKEY_COLUMNS

} // namespace oncekey::phases
