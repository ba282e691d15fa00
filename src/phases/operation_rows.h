// operation_rows: the rows of operations and their answers, and every statement about them.
//
// A key is in oncekey_operation from its first claim until it is finished, and in oncekey_answer from then on; the
// finishing transaction moves it. A reader that looks in this order finds it in at least one of the two.
//
// The first claim is an insertion. Between looking for an answer and inserting, another run may have claimed AND
// finished the same key; the insertion would then succeed although an answer exists. So the claim looks a second time,
// after the insertion and in the same transaction: from there on no other run can insert, and one that finished before
// is visible. If there is an answer, the insertion is undone. Uniqueness holds across the buckets of answers without
// any index over all of them.
#pragma once

#include "phases/session.h"

#include <oncekey/operation.h>
#include <oncekey/record.h>
#include <oncekey/workers.h>

#include <optional>

namespace oncekey::phases {

// An unfinished operation as it was read or claimed.
struct OperationRow {
  RecordId id;
  Fingerprint fingerprint;
  std::string recovery_point;
  std::int64_t fence = 0;
  Time lease_until{};
  std::string identity;
  Notes notes;
  OperationRequest request;
  Time first_received{};
  Time reached_at{};
  int attempts = 0;
  std::optional<Time> dead_at;
  std::string last_error;
  Time now{}; // the database's clock when it was read
};

struct AnswerRow {
  Fingerprint fingerprint;
  StoredResponse response;
};

// What the database has of a key. If both are there, the answer counts.
struct KeyRows {
  std::optional<OperationRow> operation;
  std::optional<AnswerRow> answer;
};

struct NewOperation {
  RecordId id;
  Fingerprint fingerprint;
  std::string recovery_point;
  std::string identity; // random: tells this run's insertion from those of others
  Millis lease{};
};

Result<KeyRows> find_key(Session& session, const RecordId& id);
// Inserts the operation unless its key is there, and returns what is there then. The caller is the owner if the row has
// the identity of `fresh`.
Result<KeyRows> claim_new(Session& session, const NewOperation& fresh, const OperationRequest& request);
// Takes over an operation whose lease is over. Nothing if the fence is old, the lease is live, the row is locked by an
// owner at work, or the operation is a dead letter. With Whose::own the lease may be live: the caller knows that it is
// its own and that none of its runs is at work.
enum class Whose { others, own };
Result<std::optional<OperationRow>> take_over(Session& session, const RecordId& id, std::int64_t fence, Millis lease,
                                              Whose whose);

// The statements of an owner's phase. lock_owned locks the row and compares the fence. Its result names the transaction
// (owning_transaction), for the statement that ends the phase: that one changes the row, or nothing commits.
Command lock_owned(Dialect dialect, const RecordId& id, std::int64_t fence);
// From the result of lock_owned; nothing if the ownership is lost.
std::optional<std::int64_t> owning_transaction(const SqlRows& locked);

struct OwnedRow {
  const RecordId& id;
  std::int64_t fence;
  std::int64_t transaction;
};
// Ends a phase at that recovery point, or without one at the present recovery point.
Command move_on(Dialect dialect, const OwnedRow& owned, std::optional<std::string_view> recovery_point,
                std::string_view notes, Millis lease);

struct NewAnswer {
  Time expires_at;
  std::string_view response;
  std::string_view bucket;            // its name
  std::string_view insert_for_sqlite; // by insert_answer_sqlite
};
std::string insert_answer_sqlite(std::string_view bucket_table);
std::vector<Command> finish(Dialect dialect, const OwnedRow& owned, const NewAnswer& answer);

// $1 id, $2 fence: nothing changes when the ownership is lost.
Command renew_lease(const RecordId& id, std::int64_t fence, Millis lease);
Command give_lease_up(const RecordId& id, std::int64_t fence);
Command bury(const RecordId& id, std::int64_t fence, std::string_view why);

// The completer's. pick: $1 grace, $2 the pauses after the first attempt, the second, … by id_list(), $3 $4 where to go
// on, $5 the names of the operations.
extern const std::string_view kPickAbandoned;
// $1 id, $2 why
inline constexpr std::string_view kNoteError = "UPDATE oncekey_operation SET last_error = $2 WHERE id = $1";
// $1 id, $2 why, $3 attempts: the last one counted is taken back
inline constexpr std::string_view kNoAttempt =
    "UPDATE oncekey_operation SET last_error = $2, attempts = attempts - 1 WHERE id = $1 AND attempts = $3";
// $1 id, $2 why, $3 attempts; only while it has no owner
inline constexpr std::string_view kBuryUnowned =
    "UPDATE oncekey_operation SET dead_at = {now}, last_error = $2, attempts = $3, fence = fence + 1"
    " WHERE id = $1 AND lease_until <= {now} AND dead_at IS NULL";
extern const std::string_view kListDead; // $1 limit
// $1 id
inline constexpr std::string_view kRestartDead =
    "UPDATE oncekey_operation SET dead_at = NULL, attempts = 0, next_attempt_at = {now},"
    " lease_until = 0, fence = fence + 1 WHERE id = $1 AND dead_at IS NOT NULL";
// As if the operation had reached its recovery point now: foreign calls may be made once more.
// $1 id
inline constexpr std::string_view kRestartDeadLookedAt =
    "UPDATE oncekey_operation SET dead_at = NULL, attempts = 0, next_attempt_at = {now}, reached_at = {now},"
    " lease_until = 0, fence = fence + 1 WHERE id = $1 AND dead_at IS NOT NULL";

Result<OperationRow> operation_of_row(const SqlRow& row);
UnfinishedOperation unfinished_of(const OperationRow& row);

} // namespace oncekey::phases
