#include "store/postgres/sql_batch.h"

#include "core/bucket.h"
#include "core/record_codec.h"
#include "core/transitions.h"
#include "store/postgres/single_calls.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

namespace oncekey::postgres {
namespace {

// The columns of oncekey.answer.
enum Column : int {
  column_n,
  column_answer,
  column_moment,
  column_fence,
  column_took_over,
  column_rerun,
  column_state,
  column_first_received,
  column_expires_at,
  column_lease_until,
  column_settled_at,
  column_fingerprint,
  column_claimed_by,
  column_route,
  column_key,
  column_method,
  column_target,
  column_response,
};

constexpr std::int16_t kClaimed = 1;
constexpr std::int16_t kFoundLong = 3;

// A lock is held for one round trip and one commit; a call that met it comes back after about as long.
Millis rest_after_a_lock() {
  thread_local std::minstd_rand random{std::random_device{}()};
  return Millis{std::uniform_int_distribution<int>(1, 3)(random)};
}

} // namespace

Result<Found> found_of(const Row& row, const RecordId& id) {
  Result<Record> record = record_of(row, id);
  if (!record) return std::move(record).fault();
  return Found{*std::move(record), time_at(row, column_moment)};
}

Result<Record> record_of(const Row& row, const RecordId& id) {
  Record record;
  const std::int16_t state = row.int2(column_state);
  const std::string_view claimant = row.bytes(column_claimed_by);
  Result<ClaimContext> context = decode_context(claimant.substr(std::min(claimant.size(), record.claimed_by.size())));
  const bool well_formed = context.ok() && state >= static_cast<int>(RecordState::in_progress) &&
                           state <= static_cast<int>(RecordState::indeterminate) &&
                           copy_exactly(row.bytes(column_fingerprint), record.fingerprint.bytes) &&
                           copy_exactly(claimant.substr(0, record.claimed_by.size()), record.claimed_by);
  if (!well_formed) return corrupt("record " + short_hash(id) + ": its row does not have the shape of a record");
  record.context = *std::move(context);
  record.state = static_cast<RecordState>(state);
  record.fence = static_cast<std::uint64_t>(row.int8(column_fence));
  record.took_over = row.boolean(column_took_over);
  record.rerun = row.boolean(column_rerun);
  record.first_received = time_at(row, column_first_received);
  record.expires_at = time_at(row, column_expires_at);
  record.lease_until = time_at(row, column_lease_until);
  record.settled_at = time_at(row, column_settled_at);
  record.route = row.bytes(column_route);
  record.key = row.bytes(column_key);
  record.method = row.bytes(column_method);
  record.target = row.bytes(column_target);
  if (row.is_null(column_response)) return record;
  Result<StoredResponse> response = decode_response(row.bytes(column_response));
  if (!response) return Fault{response.fault().kind, "record " + short_hash(id) + ": " + response.fault().message};
  record.response = *std::move(response);
  return record;
}

SqlBatch::SqlBatch(CallBatch& batch, SqlTerms terms)
    : batch_(batch), terms_(std::move(terms)), busy_(batch.size(), false) {
  for (std::size_t at = 0; at < batch.size(); ++at) {
    if (batch[at].calls.empty()) continue;
    const PostgresCall& call = *batch[at].calls.front();
    const AnyCall& what = call.what;
    if (std::holds_alternative<ClaimCall>(what)) {
      (call.only_read ? reads_ : claims_).push_back(at);
    } else if (const auto* find = std::get_if<FindCall>(&what)) {
      reads_.push_back(at);
      if (find->interest == Interest::settling) awaits_.push_back(at);
    } else if (std::holds_alternative<FenceCall>(what)) {
      fences_.push_back(at);
    } else {
      singles_.push_back(at);
    }
  }
}

ArrayParam SqlBatch::locks_of(const Indexes& groups) const {
  ArrayParam locks(kInt8Oid, groups.size());
  for (const std::size_t at : groups) locks.add_int8(lock_of(batch_[at].id));
  return locks;
}

ArrayParam SqlBatch::ids_of(const Indexes& groups) const {
  ArrayParam ids(kByteaOid, groups.size());
  for (const std::size_t at : groups) ids.add_bytes(view_of(batch_[at].id));
  return ids;
}

Statement SqlBatch::claim_statement() const {
  const std::size_t count = claims_.size();
  ArrayParam fingerprints(kByteaOid, count), tokens(kByteaOid, count);
  ArrayParam leases(kInt8Oid, count), retentions(kInt8Oid, count), widths(kInt4Oid, count), take_over(kBoolOid, count);
  ArrayParam routes(kTextOid, count), keys(kTextOid, count), methods(kTextOid, count), targets(kTextOid, count);
  for (const std::size_t at : claims_) {
    const ClaimRequest& request = first<ClaimCall>(at).request;
    fingerprints.add_bytes(view_of(request.fingerprint));
    // The token, and behind it where the claim came from.
    std::string claimant(view_of(request.token.data(), request.token.size()));
    encode_context(request.context, claimant);
    tokens.add_bytes(claimant);
    leases.add_int8(request.lease.count());
    retentions.add_int8(request.retention.count());
    widths.add_int4(bucket_width_log2(request.retention));
    take_over.add_bool(request.abandoned == Abandoned::take_over);
    routes.add_bytes(as_text(request.route, terms_.encoding));
    keys.add_bytes(as_text(request.key, terms_.encoding));
    methods.add_bytes(as_text(request.method, terms_.encoding));
    targets.add_bytes(as_text(request.target, terms_.encoding));
  }
  Statement statement{"SELECT * FROM oncekey.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
                      {}};
  statement.params.text(terms_.marker.generation).int8(static_cast<std::int64_t>(terms_.marker.tick));
  statement.params.int8(terms_.skew.count()).array(locks_of(claims_)).array(ids_of(claims_));
  statement.params.array(std::move(fingerprints)).array(std::move(leases)).array(std::move(retentions));
  statement.params.array(std::move(widths)).array(std::move(take_over)).array(std::move(tokens));
  statement.params.array(std::move(routes)).array(std::move(keys)).array(std::move(methods)).array(std::move(targets));
  return statement;
}

Statement SqlBatch::settle_statement() const {
  const std::size_t count = fences_.size();
  ArrayParam fences(kInt8Oid, count), verbs(kInt2Oid, count), leases(kInt8Oid, count);
  ArrayParam tokens(kByteaOid, count), responses(kByteaOid, count), partials(kBoolOid, count);
  for (const std::size_t at : fences_) {
    const FenceCall& call = first<FenceCall>(at);
    fences.add_int8(static_cast<std::int64_t>(call.owner.fence));
    if (call.owner.token == ClaimToken{}) {
      tokens.add_null();
    } else {
      tokens.add_bytes(view_of(call.owner.token.data(), call.owner.token.size()));
    }
    verbs.add_int2(static_cast<std::int16_t>(call.verb));
    leases.add_int8(call.lease.count());
    if (call.verb == FenceVerb::complete) {
      responses.add_bytes(encoded(call.response));
    } else {
      responses.add_null();
    }
    partials.add_bool(is_partial(call.response));
  }
  Statement statement{"SELECT oncekey.settle($1, $2, $3, $4, $5, $6, $7, $8, $9)", {}};
  statement.params.int8(terms_.skew.count()).array(locks_of(fences_)).array(ids_of(fences_)).array(std::move(fences));
  statement.params.array(std::move(tokens)).array(std::move(verbs)).array(std::move(leases));
  statement.params.array(std::move(responses)).array(std::move(partials));
  return statement;
}

Statement SqlBatch::await_statement() const {
  Statement statement{"SELECT oncekey.await($1, $2, $3)", {}};
  statement.params.int8(terms_.skew.count()).array(locks_of(awaits_)).array(ids_of(awaits_));
  return statement;
}

std::vector<Statement> SqlBatch::writes() const {
  std::vector<Statement> statements;
  if (!claims_.empty()) statements.push_back(claim_statement());
  if (!fences_.empty()) statements.push_back(settle_statement());
  if (!awaits_.empty()) statements.push_back(await_statement());
  for (const std::size_t at : singles_) {
    std::visit(
        [&]<class Call>(const Call& call) {
          if constexpr (requires { statement_of(call, terms_); }) statements.push_back(statement_of(call, terms_));
        },
        batch_[at].calls.front()->what);
  }
  return statements;
}

std::vector<Statement> SqlBatch::reads() const {
  Statement statement{"SELECT * FROM oncekey.find($1, $2)", {}};
  statement.params.int8(terms_.skew.count()).array(ids_of(reads_));
  std::vector<Statement> statements;
  statements.push_back(std::move(statement));
  return statements;
}

void SqlBatch::read_writes(const Section& section, PendingAnswers& pending) {
  std::size_t next = 0;
  if (!claims_.empty()) read_claims(section.results[next++].get(), pending);
  if (!fences_.empty()) read_fences(section.results[next++].get(), pending);
  if (!awaits_.empty()) read_awaits(section.results[next++].get());
  for (const std::size_t at : singles_) {
    const PGresult* const result = section.results[next++].get();
    const bool answered = std::visit(
        [&]<class Call>(Call& call) {
          if constexpr (requires { answer_of(call, result); }) {
            auto answer = answer_of(call, result);
            if (answer) pending.add(call.done, *std::move(answer));
            return answer.has_value();
          }
          return false;
        },
        batch_[at].calls.front()->what);
    if (answered) {
      ++written_;
      batch_[at].calls.clear();
    } else {
      batch_[at].rest = rest_after_a_lock();
    }
  }
}

void SqlBatch::read_claims(const PGresult* result, PendingAnswers& pending) {
  // A claim without a row met a lock that was not free.
  for (const std::size_t at : claims_) batch_[at].rest = rest_after_a_lock();
  for (int at = 0; at < PQntuples(result); ++at) {
    const Row row(result, at);
    const auto place = static_cast<std::size_t>(row.int4(column_n)) - 1;
    if (place >= claims_.size()) continue;
    CallGroup& group = batch_[claims_[place]];
    group.rest = Millis{0};
    server_time_ = time_at(row, column_moment);
    const std::int16_t answer = row.int2(column_answer);
    if (answer == kClaimed) {
      const Claimed claimed{static_cast<std::uint64_t>(row.int8(column_fence)), row.boolean(column_took_over),
                            *server_time_};
      answer_claimed(group, claimed, pending);
    } else if (answer == kFoundLong) {
      for (const PostgresCallPtr& call : group.calls) call->only_read = true;
    } else {
      share_found(group, found_of(row, group.id), pending);
    }
  }
}

void SqlBatch::answer_claimed(CallGroup& group, const Claimed& claimed, PendingAnswers& pending) {
  auto& claim = std::get<ClaimCall>(group.calls.front()->what);
  ++written_;
  retentions_.push_back(claim.request.retention);
  pending.add(claim.done, Result<ClaimAnswer>(ClaimAnswer(claimed)));
  group.calls.erase(group.calls.begin());
}

// Claims that would only find get what was found. Those that would take over what the first one left are sent
// themselves.
void SqlBatch::share_found(CallGroup& group, const Result<Found>& found, PendingAnswers& pending) {
  if (!found) {
    for (const PostgresCallPtr& call : group.calls) pending.refuse(call->what, found.fault());
    group.calls.clear();
    return;
  }
  std::vector<PostgresCallPtr> staying;
  const std::optional<Record> record(*found->record);
  for (PostgresCallPtr& call : group.calls) {
    auto& claim = std::get<ClaimCall>(call->what);
    call->only_read = false;
    if (&call != &group.calls.front() && claim_changes(record, claim.request, found->now)) {
      staying.push_back(std::move(call));
    } else {
      pending.add(claim.done, Result<ClaimAnswer>(ClaimAnswer(*found)));
    }
  }
  group.calls = std::move(staying);
}

void SqlBatch::read_fences(const PGresult* result, PendingAnswers& pending) {
  const std::vector<std::string_view> answers = Row(result, 0).array(0);
  for (std::size_t at = 0; at < fences_.size(); ++at) {
    CallGroup& group = batch_[fences_[at]];
    const std::int16_t answer = at < answers.size() ? int2_of(answers[at]) : std::int16_t{0};
    if (answer != 1 && answer != 2) {
      group.rest = rest_after_a_lock();
      continue;
    }
    if (answer == 1) ++written_;
    pending.add(first<FenceCall>(fences_[at]).done,
                Result<FenceAnswer>(answer == 1 ? FenceAnswer::done : FenceAnswer::lost));
    group.calls.clear();
  }
}

void SqlBatch::read_awaits(const PGresult* result) {
  const std::vector<std::string_view> locked = Row(result, 0).array(0);
  for (std::size_t at = 0; at < awaits_.size(); ++at) {
    if (at < locked.size() && bool_of(locked[at])) continue;
    busy_[awaits_[at]] = true;
    batch_[awaits_[at]].rest = rest_after_a_lock();
  }
}

void SqlBatch::read_reads(const Section& section, PendingAnswers& pending) {
  const PGresult* const result = section.results[0].get();
  std::vector<int> row_of(reads_.size(), -1);
  for (int at = 0; at < PQntuples(result); ++at) {
    const auto place = static_cast<std::size_t>(Row(result, at).int4(column_n)) - 1;
    if (place < row_of.size()) row_of[place] = at;
  }
  for (std::size_t at = 0; at < reads_.size(); ++at) {
    CallGroup& group = batch_[reads_[at]];
    if (busy_[reads_[at]] || group.calls.empty()) continue;
    std::optional<Result<Found>> found;
    if (row_of[at] >= 0) found = found_of(Row(result, row_of[at]), group.id);
    if (found && *found) server_time_ = (*found)->now;
    if (std::holds_alternative<ClaimCall>(group.calls.front()->what)) {
      if (found) {
        share_found(group, *found, pending);
      } else {
        for (const PostgresCallPtr& call : group.calls) call->only_read = false; // gone: claimed after all
      }
      continue;
    }
    if (found && *found && first<FindCall>(reads_[at]).interest == Interest::settling &&
        (*found)->record->state == RecordState::in_progress) {
      awaited_.push_back(group.id);
    }
    for (const PostgresCallPtr& call : group.calls) {
      Done<std::optional<Found>>& done = std::get<FindCall>(call->what).done;
      if (!found) {
        pending.add(done, Result<std::optional<Found>>(std::optional<Found>{}));
      } else if (!*found) {
        pending.add(done, Result<std::optional<Found>>(found->fault()));
      } else {
        pending.add(done, Result<std::optional<Found>>(std::optional<Found>(**found)));
      }
    }
    group.calls.clear();
  }
}

void SqlBatch::keep_writes() {
  for (const std::size_t at : awaits_) busy_[at] = true;
}

void SqlBatch::refuse_groups(const Indexes& groups, const Fault& fault, PendingAnswers& pending) {
  for (const std::size_t at : groups) {
    for (const PostgresCallPtr& call : batch_[at].calls) pending.refuse(call->what, fault);
    batch_[at].calls.clear();
  }
}

void SqlBatch::refuse_writes(const Fault& fault, PendingAnswers& pending) {
  for (const Indexes* groups : {&claims_, &fences_, &singles_, &awaits_}) refuse_groups(*groups, fault, pending);
}

void SqlBatch::refuse_reads(const Fault& fault, PendingAnswers& pending) { refuse_groups(reads_, fault, pending); }

void SqlBatch::refuse_claims(const Fault& fault, PendingAnswers& pending) {
  for (const Indexes* groups : {&claims_, &singles_}) {
    for (const std::size_t at : *groups) {
      const bool begins = !batch_[at].calls.empty() && kind_of(batch_[at].calls.front()->what) == CallKind::begins_work;
      if (begins) refuse_groups({at}, fault, pending);
    }
  }
}

} // namespace oncekey::postgres
