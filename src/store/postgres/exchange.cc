#include "store/postgres/exchange.h"

#include "core/bucket.h"
#include "core/record_codec.h"
#include "core/transitions.h"

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
  column_job,
  column_id,
};

// The bits of `job`.
constexpr std::int16_t kStaged = 1;
constexpr std::int16_t kOrdered = 2;
constexpr std::int16_t kResting = 4;

constexpr std::int16_t kClaimed = 1;
constexpr std::int16_t kFoundLong = 3;

std::string_view view_of(const std::uint8_t* bytes, std::size_t size) {
  return {static_cast<const char*>(static_cast<const void*>(bytes)), size};
}
template <class Tag>
std::string_view view_of(const Digest<Tag>& digest) {
  return view_of(digest.bytes.data(), digest.bytes.size());
}

// The lock of an id: some of its bits, which are as good as any others. Ids that share one take turns, nothing more.
std::int64_t lock_of(const RecordId& id) {
  std::int64_t lock;
  std::memcpy(&lock, id.bytes.data() + 8, sizeof lock);
  return lock;
}

Time time_at(const Row& row, int column) { return Time{Millis{row.int8(column)}}; }

template <class Bytes>
bool copy_exactly(std::string_view from, Bytes& to) {
  if (from.size() != to.size()) return false;
  std::memcpy(to.data(), from.data(), to.size());
  return true;
}

// A lock is held for one round trip and one commit; whoever met it comes back after about as long.
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
  const std::int16_t job = row.int2(column_job);
  record.staged = (job & kStaged) != 0;
  record.ordered = (job & kOrdered) != 0;
  record.resting = (job & kResting) != 0;
  if (row.is_null(column_response)) return record;
  Result<StoredResponse> response = decode_response(row.bytes(column_response));
  if (!response) return Fault{response.fault().kind, "record " + short_hash(id) + ": " + response.fault().message};
  record.response = *std::move(response);
  return record;
}

Exchange::Exchange(Batch& batch, ExchangeTerms terms)
    : batch_(batch), terms_(std::move(terms)), busy_(batch.size(), false) {
  for (std::size_t at = 0; at < batch.size(); ++at) {
    if (batch[at].calls.empty()) continue;
    const auto& what = batch[at].calls.front().what;
    if (const auto* claim = std::get_if<ClaimCall>(&what)) {
      (claim->only_read ? reads_ : claims_).push_back(at);
    } else if (const auto* find = std::get_if<FindCall>(&what)) {
      reads_.push_back(at);
      if (find->interest == Interest::settling) awaits_.push_back(at);
    } else if (std::holds_alternative<FenceCall>(what)) {
      fences_.push_back(at);
    } else if (std::holds_alternative<TakeCall>(what)) {
      takes_.push_back(at);
    } else {
      operators_.push_back(at);
    }
  }
}

ArrayParam Exchange::locks_of(const Indexes& groups) const {
  ArrayParam locks(kInt8Oid, groups.size());
  for (const std::size_t at : groups) locks.add_int8(lock_of(batch_[at].id));
  return locks;
}

ArrayParam Exchange::ids_of(const Indexes& groups) const {
  ArrayParam ids(kByteaOid, groups.size());
  for (const std::size_t at : groups) ids.add_bytes(view_of(batch_[at].id));
  return ids;
}

Statement Exchange::claim_statement() const {
  const std::size_t count = claims_.size();
  ArrayParam fingerprints(kByteaOid, count), tokens(kByteaOid, count);
  ArrayParam leases(kInt8Oid, count), retentions(kInt8Oid, count), widths(kInt4Oid, count), take_over(kBoolOid, count);
  ArrayParam routes(kTextOid, count), keys(kTextOid, count), methods(kTextOid, count), targets(kTextOid, count);
  ArrayParam jobs(kInt2Oid, count), messages(kByteaOid, count);
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
    if (request.staged) {
      jobs.add_int2(static_cast<std::int16_t>(kStaged | kResting | (request.staged->ordered ? kOrdered : 0)));
      std::string message;
      encode_response(request.staged->message, message);
      messages.add_bytes(message);
    } else {
      jobs.add_int2(0);
      messages.add_null();
    }
  }
  Statement statement{
      "SELECT * FROM oncekey.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)", {}};
  statement.params.text(terms_.marker.generation).int8(static_cast<std::int64_t>(terms_.marker.tick));
  statement.params.int8(terms_.skew.count()).array(locks_of(claims_)).array(ids_of(claims_));
  statement.params.array(std::move(fingerprints)).array(std::move(leases)).array(std::move(retentions));
  statement.params.array(std::move(widths)).array(std::move(take_over)).array(std::move(tokens));
  statement.params.array(std::move(routes)).array(std::move(keys)).array(std::move(methods)).array(std::move(targets));
  statement.params.array(std::move(jobs)).array(std::move(messages));
  return statement;
}

Statement Exchange::settle_statement() const {
  const std::size_t count = fences_.size();
  ArrayParam fences(kInt8Oid, count), verbs(kInt2Oid, count), leases(kInt8Oid, count);
  ArrayParam responses(kByteaOid, count), partials(kBoolOid, count);
  for (const std::size_t at : fences_) {
    const FenceCall& call = first<FenceCall>(at);
    fences.add_int8(static_cast<std::int64_t>(call.owner.fence));
    verbs.add_int2(static_cast<std::int16_t>(call.verb));
    leases.add_int8(call.lease.count());
    if (call.verb == FenceVerb::complete || call.verb >= FenceVerb::attempt_again) {
      responses.add_bytes(call.response);
    } else {
      responses.add_null();
    }
    partials.add_bool(call.partial);
  }
  Statement statement{"SELECT oncekey.settle($1, $2, $3, $4, $5, $6, $7, $8)", {}};
  statement.params.int8(terms_.skew.count()).array(locks_of(fences_)).array(ids_of(fences_)).array(std::move(fences));
  statement.params.array(std::move(verbs)).array(std::move(leases)).array(std::move(responses));
  statement.params.array(std::move(partials));
  return statement;
}

Statement Exchange::await_statement() const {
  Statement statement{"SELECT oncekey.await($1, $2, $3)", {}};
  statement.params.int8(terms_.skew.count()).array(locks_of(awaits_)).array(ids_of(awaits_));
  return statement;
}

Statement Exchange::operate_statement(std::size_t group) const {
  const OperatorCall& call = first<OperatorCall>(group);
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
  statement.params.int8(terms_.skew.count()).int8(lock_of(call.id)).bytes(view_of(call.id)).int2(action);
  statement.params.bytes(call.response).boolean(call.partial);
  return statement;
}

Statement Exchange::take_statement(std::size_t group) const {
  const TakeRequest& request = first<TakeCall>(group).request;
  Statement statement{"SELECT * FROM oncekey.take($1, $2, $3, $4, $5::int4, $6)", {}};
  statement.params.text(terms_.marker.generation).int8(static_cast<std::int64_t>(terms_.marker.tick));
  statement.params.int8(terms_.skew.count()).text(as_text(request.route, terms_.encoding));
  statement.params.int8(static_cast<std::int64_t>(request.limit)).int8(request.lease.count());
  return statement;
}

std::vector<Statement> Exchange::writes() const {
  std::vector<Statement> statements;
  if (!claims_.empty()) statements.push_back(claim_statement());
  if (!fences_.empty()) statements.push_back(settle_statement());
  if (!awaits_.empty()) statements.push_back(await_statement());
  for (const std::size_t at : operators_) statements.push_back(operate_statement(at));
  for (const std::size_t at : takes_) statements.push_back(take_statement(at));
  return statements;
}

std::vector<Statement> Exchange::reads() const {
  Statement statement{"SELECT * FROM oncekey.find($1, $2)", {}};
  statement.params.int8(terms_.skew.count()).array(ids_of(reads_));
  std::vector<Statement> statements;
  statements.push_back(std::move(statement));
  return statements;
}

void Exchange::read_writes(const Section& section, Outbox& outbox) {
  std::size_t next = 0;
  if (!claims_.empty()) read_claims(section.results[next++].get(), outbox);
  if (!fences_.empty()) read_fences(section.results[next++].get(), outbox);
  if (!awaits_.empty()) read_awaits(section.results[next++].get());
  for (const std::size_t at : operators_) read_operator(at, section.results[next++].get(), outbox);
  for (const std::size_t at : takes_) read_taken(at, section.results[next++].get(), outbox);
}

void Exchange::read_claims(const PGresult* result, Outbox& outbox) {
  // A claim without a row met a lock that was not free.
  for (const std::size_t at : claims_) batch_[at].rest = rest_after_a_lock();
  for (int at = 0; at < PQntuples(result); ++at) {
    const Row row(result, at);
    const auto place = static_cast<std::size_t>(row.int4(column_n)) - 1;
    if (place >= claims_.size()) continue;
    Group& group = batch_[claims_[place]];
    group.rest = Millis{0};
    server_time_ = time_at(row, column_moment);
    const std::int16_t answer = row.int2(column_answer);
    if (answer == kClaimed) {
      const Claimed claimed{static_cast<std::uint64_t>(row.int8(column_fence)), row.boolean(column_took_over),
                            *server_time_};
      answer_claimed(group, claimed, outbox);
    } else if (answer == kFoundLong) {
      for (Call& call : group.calls) std::get<ClaimCall>(call.what).only_read = true;
    } else {
      share_found(group, found_of(row, group.id), outbox);
    }
  }
}

void Exchange::answer_claimed(Group& group, const Claimed& claimed, Outbox& outbox) {
  auto& claim = std::get<ClaimCall>(group.calls.front().what);
  ++written_;
  retentions_.push_back(claim.request.retention);
  outbox.add(claim.done, Result<ClaimAnswer>(ClaimAnswer(claimed)));
  group.calls.erase(group.calls.begin());
}

// Whoever would only find gets what was found. The others, who would take over what the first one left, ask themselves.
void Exchange::share_found(Group& group, const Result<Found>& found, Outbox& outbox) {
  if (!found) {
    for (Call& call : group.calls) outbox.refuse(call, found.fault());
    group.calls.clear();
    return;
  }
  std::vector<Call> staying;
  const std::optional<Record> record(*found->record);
  for (Call& call : group.calls) {
    auto& claim = std::get<ClaimCall>(call.what);
    claim.only_read = false;
    if (&call != &group.calls.front() && claim_changes(record, claim.request, found->now)) {
      staying.push_back(std::move(call));
    } else {
      outbox.add(claim.done, Result<ClaimAnswer>(ClaimAnswer(*found)));
    }
  }
  group.calls = std::move(staying);
}

void Exchange::read_fences(const PGresult* result, Outbox& outbox) {
  const std::vector<std::string_view> answers = Row(result, 0).array(0);
  for (std::size_t at = 0; at < fences_.size(); ++at) {
    Group& group = batch_[fences_[at]];
    const std::int16_t answer = at < answers.size() ? int2_of(answers[at]) : std::int16_t{0};
    if (answer != 1 && answer != 2) {
      group.rest = rest_after_a_lock();
      continue;
    }
    if (answer == 1) ++written_;
    outbox.add(first<FenceCall>(fences_[at]).done,
               Result<FenceAnswer>(answer == 1 ? FenceAnswer::done : FenceAnswer::lost));
    group.calls.clear();
  }
}

void Exchange::read_awaits(const PGresult* result) {
  const std::vector<std::string_view> locked = Row(result, 0).array(0);
  for (std::size_t at = 0; at < awaits_.size(); ++at) {
    if (at < locked.size() && bool_of(locked[at])) continue;
    busy_[awaits_[at]] = true;
    batch_[awaits_[at]].rest = rest_after_a_lock();
  }
}

void Exchange::read_operator(std::size_t group, const PGresult* result, Outbox& outbox) {
  constexpr OperatorAnswer kAnswers[] = {OperatorAnswer::done, OperatorAnswer::absent, OperatorAnswer::live,
                                         OperatorAnswer::completed};
  const std::int16_t answer = Row(result, 0).int2(0);
  if (answer < 1 || answer > 4) {
    batch_[group].rest = rest_after_a_lock();
    return;
  }
  outbox.add(first<OperatorCall>(group).done, Result<OperatorAnswer>(kAnswers[answer - 1]));
  batch_[group].calls.clear();
}

void Exchange::read_taken(std::size_t group, const PGresult* result, Outbox& outbox) {
  Result<std::vector<TakenJob>> answer = std::vector<TakenJob>{};
  for (int at = 0; at < PQntuples(result) && answer; ++at) {
    const Row row(result, at);
    TakenJob taken;
    if (!copy_exactly(row.bytes(column_id), taken.id.bytes)) {
      answer = corrupt("a job's id does not have 32 bytes");
      break;
    }
    Result<Record> record = record_of(row, taken.id);
    if (!record) {
      answer = std::move(record).fault();
      break;
    }
    taken.record = *std::move(record);
    taken.now = time_at(row, column_moment);
    server_time_ = taken.now;
    answer->push_back(std::move(taken));
    ++written_;
  }
  outbox.add(first<TakeCall>(group).done, std::move(answer));
  batch_[group].calls.clear();
}

void Exchange::read_reads(const Section& section, Outbox& outbox) {
  const PGresult* const result = section.results[0].get();
  std::vector<int> row_of(reads_.size(), -1);
  for (int at = 0; at < PQntuples(result); ++at) {
    const auto place = static_cast<std::size_t>(Row(result, at).int4(column_n)) - 1;
    if (place < row_of.size()) row_of[place] = at;
  }
  for (std::size_t at = 0; at < reads_.size(); ++at) {
    Group& group = batch_[reads_[at]];
    if (busy_[reads_[at]] || group.calls.empty()) continue;
    std::optional<Result<Found>> found;
    if (row_of[at] >= 0) found = found_of(Row(result, row_of[at]), group.id);
    if (found && *found) server_time_ = (*found)->now;
    if (is_claim(group.calls.front())) {
      if (found) {
        share_found(group, *found, outbox);
      } else {
        for (Call& call : group.calls) std::get<ClaimCall>(call.what).only_read = false; // gone: claimed after all
      }
      continue;
    }
    if (found && *found && first<FindCall>(reads_[at]).interest == Interest::settling &&
        (*found)->record->state == RecordState::in_progress) {
      awaited_.push_back(group.id);
    }
    for (Call& call : group.calls) {
      Done<std::optional<Found>>& done = std::get<FindCall>(call.what).done;
      if (!found) {
        outbox.add(done, Result<std::optional<Found>>(std::optional<Found>{}));
      } else if (!*found) {
        outbox.add(done, Result<std::optional<Found>>(found->fault()));
      } else {
        outbox.add(done, Result<std::optional<Found>>(std::optional<Found>(**found)));
      }
    }
    group.calls.clear();
  }
}

void Exchange::keep_writes() {
  for (const std::size_t at : awaits_) busy_[at] = true;
}

void Exchange::refuse_groups(const Indexes& groups, const Fault& fault, Outbox& outbox) {
  for (const std::size_t at : groups) {
    for (Call& call : batch_[at].calls) outbox.refuse(call, fault);
    batch_[at].calls.clear();
  }
}

void Exchange::refuse_writes(const Fault& fault, Outbox& outbox) {
  for (const Indexes* groups : {&claims_, &fences_, &operators_, &takes_, &awaits_})
    refuse_groups(*groups, fault, outbox);
}

void Exchange::refuse_reads(const Fault& fault, Outbox& outbox) { refuse_groups(reads_, fault, outbox); }

void Exchange::refuse_claims(const Fault& fault, Outbox& outbox) {
  refuse_groups(claims_, fault, outbox);
  refuse_groups(takes_, fault, outbox);
}

} // namespace oncekey::postgres
