#include "store/postgres/batch_sender.h"

#include <pthread.h>

#include <charconv>

namespace oncekey::postgres {
namespace {

constexpr Millis kFirstPause{25};
constexpr Millis kLongestPause{2000};
// A sender without calls looks this often whether its connection is still there.
constexpr Millis kIdleLook{1000};

// A statement ends by itself this long after its caller has given up, unless it could be cancelled.
constexpr Millis kBeyondACall{1000};

constexpr std::string_view kOtherMarker = "OK001"; // raised by oncekey.check_marker()

Deadline deadline_of(const CallBatch& batch, Millis call_timeout) {
  Deadline earliest = Deadline::max();
  for (const CallGroup& group : batch) {
    for (const PostgresCallPtr& call : group.calls) earliest = std::min(earliest, call->answer_by);
  }
  // A call that had to wait leaves little time for itself; the others of its batch should not suffer for it.
  return std::max(earliest, deadline_in(call_timeout / 2));
}

} // namespace

std::optional<std::int64_t> missing_bucket(const SqlError& error) {
  // check_violation: "Partition key of the failing row contains (bucket) = (NUMBER)." in the server's language.
  if (error.state != "23514" || error.table != "record") return std::nullopt;
  const std::size_t open = error.detail.rfind('(');
  if (open == std::string::npos) return std::nullopt;
  std::int64_t bucket = 0;
  const char* const begin = error.detail.data() + open + 1;
  const auto [end, failure] = std::from_chars(begin, error.detail.data() + error.detail.size(), bucket);
  if (failure != std::errc{} || end == error.detail.data() + error.detail.size() || *end != ')') return std::nullopt;
  return bucket;
}

BatchSender::BatchSender(PostgresState& state)
    : state_(state), backoff_(kFirstPause, kLongestPause), thread_([this] { run(); }) {}

BatchSender::~BatchSender() { thread_.join(); }

void BatchSender::run() {
  pthread_setname_np(pthread_self(), "store-postgres");
  while (!state_.stopping()) {
    if (!connection_ && !connect()) {
      state_.sleep(backoff_.next());
      continue;
    }
    CallBatch batch = state_.queue.take(deadline_in(kIdleLook));
    if (!connection_->usable()) {
      // The server went while no call was under way: nothing was sent, so the calls may wait for the next
      // connection.
      disconnect();
      state_.queue.give_back(std::move(batch));
      continue;
    }
    if (!batch.empty()) serve(std::move(batch));
  }
  if (connection_) disconnect();
}

bool BatchSender::connect() {
  Result<std::unique_ptr<Connection>> opened = state_.open_connection();
  Status admitted = opened ? state_.admit(**opened) : Status(opened.fault());
  if (!admitted) {
    state_.cannot_connect(admitted.fault());
    return false;
  }
  connection_ = *std::move(opened);
  const bool is_ours =
      limit_session(*connection_, state_.call_timeout + kBeyondACall, deadline_in(state_.call_timeout));
  if (is_ours) connection_->prepare_statements();
  backoff_.reset();
  state_.connected();
  return true;
}

void BatchSender::disconnect() {
  connection_.reset();
  state_.disconnected();
}

void BatchSender::serve(CallBatch batch) {
  const Deadline taken_at = std::chrono::steady_clock::now();
  PendingAnswers pending;
  if (const Status may_claim = state_.marker.may_claim(); !may_claim)
    refuse_new_work(batch, may_claim.fault(), pending);
  SqlBatch sql(batch, state_, connection_->text_encoding(), pending);
  std::vector<std::vector<Statement>> sections;
  if (sql.has_writes()) sections.push_back(sql.writes());
  if (sql.has_reads()) sections.push_back(sql.reads());
  if (!sections.empty()) {
    const std::vector<Section> answers = connection_->pipeline(sections, deadline_of(batch, state_.call_timeout));
    if (sql.has_writes()) settle_writes(sql, answers.front());
    if (sql.has_reads()) {
      const Section& reads = answers.back();
      if (reads.committed()) {
        sql.read_reads(reads);
      } else if (!connection_->mends_prepared(reads)) {
        sql.refuse_reads(unavailable(connection_->fault_of(reads).message));
      }
    }
  }
  const bool lost = !connection_->usable();
  if (lost) disconnect();
  // What answers may lead to (the next call for the same id) should not wait for the answers.
  state_.queue.give_back(std::move(batch), std::chrono::steady_clock::now() - taken_at);
  pending.deliver();
}

void BatchSender::settle_writes(SqlBatch& sql, const Section& section) {
  if (section.committed()) {
    sql.read_writes(section);
  } else if (connection_->mends_prepared(section)) {
    sql.keep_writes();
  } else if (section.outcome == SectionOutcome::rolled_back && mend(sql, section.error)) {
    sql.keep_writes();
  } else {
    sql.refuse_writes(connection_->fault_of(section));
  }
}

bool BatchSender::mend(SqlBatch& sql, const SqlError& error) {
  if (const std::optional<std::int64_t> bucket = missing_bucket(error)) return make_partition(*bucket);
  // serialization_failure and deadlock_detected: another program changed records; the transaction did not happen.
  if (error.state == "40001" || error.state == "40P01") return true;
  if (error.state == kOtherMarker || says_gone(error)) {
    if (!connection_->usable() || !state_.admit(*connection_)) return false;
    const Status may_claim = state_.marker.may_claim();
    if (!may_claim) sql.refuse_new_work(may_claim.fault());
    return error.state == kOtherMarker;
  }
  // read_only_sql_transaction: no primary any more. The next connection looks at who is there.
  if (error.state == "25006") connection_->give_up();
  return false;
}

bool BatchSender::make_partition(std::int64_t bucket) {
  const Section made =
      connection_->run(Statement("SELECT oncekey.make_partition($1)", bucket), deadline_in(state_.call_timeout));
  if (made.committed()) return true;
  state_.log.warning("partition_not_made", {{"store", state_.target.name}, {"reason", made.error.message}});
  return false;
}

} // namespace oncekey::postgres
