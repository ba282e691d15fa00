#include "store/postgres/sql_batch.h"

#include "core/bucket.h"
#include "core/record_codec.h"
#include "core/transitions.h"

#include <random>

namespace oncekey::postgres {
namespace {

// The columns of oncekey.answer that are there for a claim too; those of a record go on from the fence to the last.
enum Column : int { column_n, column_answer, column_moment, column_fence, column_took_over, column_fences = 18 };

constexpr std::int16_t kClaimed = 1;
constexpr std::int16_t kFoundLong = 3;

// A lock is held for one round trip and one commit; a call that met it comes back after about as long.
Millis rest_after_a_lock() {
  thread_local std::minstd_rand random{std::random_device{}()};
  return Millis{std::uniform_int_distribution<int>(1, 3)(random)};
}

Result<Found> found_of(const Row& row, const RecordId& id) {
  Result<Record> record = record_of(row, id);
  if (!record) return std::move(record).fault();
  return Found{*std::move(record), row.time(column_moment)};
}

} // namespace

Result<Record> record_of(const Row& row, const RecordId& id) {
  Record record;
  int column = column_fence;
  record.fence = row.count(column++);
  record.took_over = row.boolean(column++);
  record.rerun = row.boolean(column++);
  const std::int16_t state = row.int2(column++);
  for (Time* const time : {&record.first_received, &record.expires_at, &record.lease_until, &record.settled_at}) {
    *time = row.time(column++);
  }
  const bool has_fingerprint = copy_exactly(row.bytes(column++), record.fingerprint.bytes);
  const std::string_view claimant = row.bytes(column++);
  for (std::string* const text : {&record.route, &record.key, &record.method, &record.target}) {
    *text = row.bytes(column++);
  }
  Result<ClaimContext> context = decode_context(claimant.substr(std::min(claimant.size(), record.claimed_by.size())));
  const bool well_formed = has_fingerprint && context.ok() && state >= static_cast<int>(RecordState::in_progress) &&
                           state <= static_cast<int>(RecordState::indeterminate) &&
                           copy_exactly(claimant.substr(0, record.claimed_by.size()), record.claimed_by);
  if (!well_formed) return corrupt("record " + short_hash(id) + ": its row does not have the shape of a record");
  record.context = *std::move(context);
  record.state = static_cast<RecordState>(state);
  if (row.is_null(column)) return record;
  Result<StoredResponse> response = decode_response(row.bytes(column));
  if (!response) return Fault{response.fault().kind, "record " + short_hash(id) + ": " + response.fault().message};
  record.response = *std::move(response);
  return record;
}

void refuse_new_work(CallBatch& batch, const Fault& fault, PendingAnswers& pending) {
  for (CallGroup& group : batch) {
    const bool begins = !group.calls.empty() && kind_of(group.calls.front()->what) == CallKind::begins_work;
    if (begins) pending.refuse(group.calls, fault);
  }
}

SqlBatch::SqlBatch(CallBatch& batch, PostgresState& state, TextEncoding encoding, PendingAnswers& pending)
    : batch_(batch),
      state_(state),
      terms_{state.known_marker(), state.skew(), encoding},
      pending_(pending),
      busy_(batch.size(), false) {
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
  return ArrayParam(groups, [&](std::size_t at) { return lock_of(batch_[at].id); });
}

ArrayParam SqlBatch::ids_of(const Indexes& groups) const {
  return ArrayParam(groups, [&](std::size_t at) { return bytea_of(batch_[at].id); });
}

Statement SqlBatch::claim_statement() const {
  const auto each = [&](auto value) {
    return ArrayParam(claims_, [&](std::size_t at) { return value(first<ClaimCall>(at).request); });
  };
  const auto texts = [&](std::string ClaimRequest::*text) {
    return each([&](const ClaimRequest& request) { return as_text(request.*text, terms_.encoding); });
  };
  // The token, and behind it where the claim came from.
  const auto claimant = [](const ClaimRequest& request) {
    Bytea<std::string> bytes{std::string(view_of(request.token))};
    encode_context(request.context, bytes.bytes);
    return bytes;
  };
  return Statement("SELECT * FROM oncekey.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
                   terms_.marker.generation, static_cast<std::int64_t>(terms_.marker.tick), terms_.skew.count(),
                   locks_of(claims_), ids_of(claims_),
                   each([](const ClaimRequest& request) { return bytea_of(request.fingerprint); }),
                   each([](const ClaimRequest& request) { return request.lease.count(); }),
                   each([](const ClaimRequest& request) { return request.retention.count(); }),
                   each([](const ClaimRequest& request) { return bucket_width_log2(request.retention); }),
                   each([](const ClaimRequest& request) { return request.abandoned == Abandoned::take_over; }),
                   each(claimant), texts(&ClaimRequest::route), texts(&ClaimRequest::key), texts(&ClaimRequest::method),
                   texts(&ClaimRequest::target));
}

Statement SqlBatch::settle_statement() const {
  const auto each = [&](auto value) {
    return ArrayParam(fences_, [&](std::size_t at) { return value(first<FenceCall>(at)); });
  };
  const auto token = [](const FenceCall& call) -> std::optional<Bytea<std::string_view>> {
    if (call.owner.token == ClaimToken{}) return std::nullopt;
    return Bytea{view_of(call.owner.token)};
  };
  const auto response = [](const FenceCall& call) -> std::optional<Bytea<std::string>> {
    if (call.verb != FenceVerb::complete) return std::nullopt;
    return encoded(call.response);
  };
  return Statement("SELECT oncekey.settle($1, $2, $3, $4, $5, $6, $7, $8, $9)", terms_.skew.count(), locks_of(fences_),
                   ids_of(fences_),
                   each([](const FenceCall& call) { return static_cast<std::int64_t>(call.owner.fence); }), each(token),
                   each([](const FenceCall& call) { return static_cast<std::int16_t>(call.verb); }),
                   each([](const FenceCall& call) { return call.lease.count(); }), each(response),
                   each([](const FenceCall& call) { return call.response.unfinished(); }));
}

std::vector<Statement> SqlBatch::writes() const {
  std::vector<Statement> statements;
  if (!claims_.empty()) statements.push_back(claim_statement());
  if (!fences_.empty()) statements.push_back(settle_statement());
  if (!awaits_.empty()) {
    statements.emplace_back("SELECT oncekey.await($1, $2, $3)", terms_.skew.count(), locks_of(awaits_),
                            ids_of(awaits_));
  }
  for (const std::size_t at : singles_) {
    statements.push_back(single_statement(batch_[at].calls.front()->what, terms_));
  }
  return statements;
}

std::vector<Statement> SqlBatch::reads() const {
  std::vector<Statement> statements;
  statements.emplace_back("SELECT * FROM oncekey.find($1, $2)", terms_.skew.count(), ids_of(reads_));
  return statements;
}

void SqlBatch::read_writes(const Section& section) {
  std::size_t next = 0;
  if (!claims_.empty()) read_claims(section.results[next++].get());
  if (!fences_.empty()) read_fences(section.results[next++].get());
  if (!awaits_.empty()) read_awaits(section.results[next++].get());
  for (const std::size_t at : singles_) {
    if (answer_single(batch_[at].calls.front()->what, section.results[next++].get(), pending_)) {
      ++written_;
      batch_[at].calls.clear();
    } else {
      batch_[at].rest = rest_after_a_lock();
    }
  }
  state_.batches.fetch_add(1, std::memory_order_relaxed);
  state_.written.fetch_add(written_, std::memory_order_relaxed);
}

void SqlBatch::read_claims(const PGresult* result) {
  // A claim without a row met a lock that was not free.
  for (const std::size_t at : claims_) batch_[at].rest = rest_after_a_lock();
  std::optional<Time> moment;
  const auto claimed = [&](std::size_t place, std::uint64_t fence, bool took_over) {
    CallGroup& group = batch_[claims_[place]];
    group.rest = Millis{0};
    auto& claim = first<ClaimCall>(claims_[place]);
    ++written_;
    state_.claimed_with(claim.request.retention);
    pending_.add(claim.done, Result<ClaimAnswer>(ClaimAnswer(Claimed{fence, took_over, *moment})));
    group.calls.erase(group.calls.begin());
  };
  for (const Row row : rows_of(result)) {
    moment = row.time(column_moment);
    const std::int32_t n = row.int4(column_n);
    if (n == 0) {
      const std::vector<std::string_view> fences = row.array(column_fences);
      for (std::size_t place = 0; place < std::min(fences.size(), claims_.size()); ++place) {
        if (!fences[place].empty()) claimed(place, number_in<std::uint64_t>(fences[place]), /*took_over=*/false);
      }
      continue;
    }
    const auto place = static_cast<std::size_t>(n) - 1;
    if (place >= claims_.size()) continue;
    CallGroup& group = batch_[claims_[place]];
    group.rest = Millis{0};
    const std::int16_t answer = row.int2(column_answer);
    if (answer == kClaimed) {
      claimed(place, row.count(column_fence), row.boolean(column_took_over));
    } else if (answer == kFoundLong) {
      for (const PostgresCallPtr& call : group.calls) call->only_read = true;
    } else {
      share_found(group, found_of(row, group.id));
    }
  }
  if (moment) state_.clock.learn(*moment - terms_.skew);
}

// Claims that would only find get what was found. Those that would take over what the first one left are sent
// themselves.
void SqlBatch::share_found(CallGroup& group, const Result<Found>& found) {
  if (!found) return pending_.refuse(group.calls, found.fault());
  std::vector<PostgresCallPtr> staying;
  const std::optional<Record> record(*found->record);
  for (PostgresCallPtr& call : group.calls) {
    auto& claim = std::get<ClaimCall>(call->what);
    call->only_read = false;
    if (&call != &group.calls.front() && claim_changes(record, claim.request, found->now)) {
      staying.push_back(std::move(call));
    } else {
      pending_.add(claim.done, Result<ClaimAnswer>(ClaimAnswer(*found)));
    }
  }
  group.calls = std::move(staying);
}

void SqlBatch::read_fences(const PGresult* result) {
  const std::vector<std::string_view> answers = Row(result, 0).array(0);
  for (std::size_t at = 0; at < fences_.size(); ++at) {
    CallGroup& group = batch_[fences_[at]];
    const std::int16_t answer = at < answers.size() ? number_in<std::int16_t>(answers[at]) : std::int16_t{0};
    if (answer != 1 && answer != 2) {
      group.rest = rest_after_a_lock();
      continue;
    }
    if (answer == 1) ++written_;
    pending_.add(first<FenceCall>(fences_[at]).done,
                 Result<FenceAnswer>(answer == 1 ? FenceAnswer::done : FenceAnswer::lost));
    group.calls.clear();
  }
}

void SqlBatch::read_awaits(const PGresult* result) {
  const std::vector<std::string_view> locked = Row(result, 0).array(0);
  for (std::size_t at = 0; at < awaits_.size(); ++at) {
    if (at < locked.size() && bool_in(locked[at])) continue;
    busy_[awaits_[at]] = true;
    batch_[awaits_[at]].rest = rest_after_a_lock();
  }
}

void SqlBatch::read_reads(const Section& section) {
  std::vector<std::optional<Row>> row_of(reads_.size());
  std::vector<RecordId> awaited; // found in progress by a request that waits
  std::optional<Time> moment;
  for (const Row row : rows_of(section.result())) {
    const auto place = static_cast<std::size_t>(row.int4(column_n)) - 1;
    if (place < row_of.size()) row_of[place] = row;
  }
  for (std::size_t at = 0; at < reads_.size(); ++at) {
    CallGroup& group = batch_[reads_[at]];
    if (busy_[reads_[at]] || group.calls.empty()) continue;
    std::optional<Result<Found>> found;
    if (row_of[at]) found = found_of(*row_of[at], group.id);
    if (found && *found) moment = (*found)->now;
    if (std::holds_alternative<ClaimCall>(group.calls.front()->what)) {
      if (found) {
        share_found(group, *found);
      } else {
        for (const PostgresCallPtr& call : group.calls) call->only_read = false; // gone: claimed after all
      }
      continue;
    }
    if (found && *found && first<FindCall>(reads_[at]).interest == Interest::settling &&
        (*found)->record->state == RecordState::in_progress) {
      awaited.push_back(group.id);
    }
    const auto answer = [&]() -> Result<std::optional<Found>> {
      if (!found) return std::optional<Found>{};
      if (!*found) return found->fault();
      return std::optional<Found>(**found);
    };
    for (const PostgresCallPtr& call : group.calls) pending_.add(std::get<FindCall>(call->what).done, answer());
    group.calls.clear();
  }
  if (moment) state_.clock.learn(*moment - terms_.skew);
  state_.awaited.add(awaited);
}

void SqlBatch::keep_writes() {
  for (const std::size_t at : awaits_) busy_[at] = true;
}

void SqlBatch::refuse_groups(const Indexes& groups, const Fault& fault) {
  for (const std::size_t at : groups) pending_.refuse(batch_[at].calls, fault);
}

void SqlBatch::refuse_writes(const Fault& fault) {
  for (const Indexes* groups : {&claims_, &fences_, &singles_, &awaits_}) refuse_groups(*groups, fault);
}

} // namespace oncekey::postgres
