#include "store/postgres/worker.h"

#include <pthread.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace oncekey::postgres {
namespace {

constexpr Millis kFirstPause{25};
constexpr Millis kLongestPause{2000};
// A worker without calls looks this often whether its connection is still there.
constexpr Millis kIdleLook{1000};

// A statement ends by itself this long after whoever asked has given up, unless it could be cancelled.
constexpr Millis kBeyondACall{1000};

constexpr std::string_view kOtherMarker = "OK001"; // raised by oncekey.check_marker()

Deadline deadline_of(const Batch& batch, Millis call_timeout) {
  Deadline earliest = Deadline::max();
  for (const Group& group : batch) {
    for (const Call& call : group.calls) earliest = std::min(earliest, call.answer_by);
  }
  // A call that had to wait leaves little time for itself; the others of its batch should not suffer for it.
  return std::max(earliest, deadline_in(call_timeout / 2));
}

void refuse_claims_of(Batch& batch, const Fault& fault, Outbox& outbox) {
  for (Group& group : batch) {
    if (!is_claim(group.calls.front())) continue;
    for (Call& call : group.calls) outbox.refuse(call, fault);
    group.calls.clear();
  }
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

Worker::Worker(Shared& shared) : shared_(shared), backoff_(kFirstPause, kLongestPause), thread_([this] { run(); }) {}

Worker::~Worker() { thread_.join(); }

void Worker::run() {
  pthread_setname_np(pthread_self(), "store-postgres");
  while (!shared_.stopping()) {
    if (!connection_ && !connect()) {
      shared_.sleep(backoff_.next());
      continue;
    }
    Batch batch = shared_.queue.take(deadline_in(kIdleLook));
    if (!connection_->usable()) {
      // The server went while nobody asked it anything: nothing was sent, so the calls may wait for the next
      // connection.
      disconnect();
      shared_.queue.give_back(std::move(batch));
      continue;
    }
    if (!batch.empty()) serve(std::move(batch));
  }
  if (connection_) disconnect();
}

bool Worker::connect() {
  Result<std::unique_ptr<Connection>> opened =
      Connection::open(shared_.target, deadline_in(shared_.call_timeout), shared_.stopping());
  Status admitted = opened ? shared_.admit(**opened) : Status(opened.fault());
  if (!admitted) {
    shared_.cannot_connect(admitted.fault());
    return false;
  }
  connection_ = *std::move(opened);
  limit_session(*connection_, shared_.call_timeout + kBeyondACall, deadline_in(shared_.call_timeout));
  backoff_.reset();
  shared_.connected();
  return true;
}

void Worker::disconnect() {
  connection_.reset();
  shared_.disconnected();
}

void Worker::serve(Batch batch) {
  const Deadline taken_at = std::chrono::steady_clock::now();
  Outbox outbox;
  if (const Status may_claim = shared_.may_claim(); !may_claim) refuse_claims_of(batch, may_claim.fault(), outbox);
  const Millis skew = shared_.skew();
  Exchange exchange(batch, {shared_.known_marker(), skew, connection_->text_encoding()});
  std::vector<std::vector<Statement>> sections;
  if (exchange.has_writes()) sections.push_back(exchange.writes());
  if (exchange.has_reads()) sections.push_back(exchange.reads());
  if (!sections.empty()) {
    const std::vector<Section> answers = connection_->pipeline(sections, deadline_of(batch, shared_.call_timeout));
    std::size_t next = 0;
    if (exchange.has_writes()) settle_writes(exchange, answers[next++], outbox);
    if (exchange.has_reads()) {
      const Section& reads = answers[next];
      if (reads.outcome == SectionOutcome::committed) {
        exchange.read_reads(reads, outbox);
      } else {
        exchange.refuse_reads(unavailable(fault_of(reads, shared_.target.name).message), outbox);
      }
    }
    if (exchange.server_time()) shared_.clock.learn(*exchange.server_time() - skew);
    shared_.awaited.add(exchange.awaited());
  }
  const bool lost = !connection_->usable();
  if (lost) disconnect();
  // What answers may lead to (the next call for the same id) should not wait for the answers.
  shared_.queue.give_back(std::move(batch), std::chrono::steady_clock::now() - taken_at);
  outbox.deliver();
}

void Worker::settle_writes(Exchange& exchange, const Section& section, Outbox& outbox) {
  switch (section.outcome) {
    case SectionOutcome::committed:
      exchange.read_writes(section, outbox);
      shared_.batches.fetch_add(1, std::memory_order_relaxed);
      shared_.written.fetch_add(static_cast<std::uint64_t>(exchange.records_written()), std::memory_order_relaxed);
      for (const Millis retention : exchange.retentions_claimed()) shared_.claimed_with(retention);
      return;
    case SectionOutcome::rolled_back:
      if (mend(exchange, section.error, outbox)) {
        exchange.keep_writes();
        return;
      }
      break;
    case SectionOutcome::not_sent:
    case SectionOutcome::unknown:
      break;
  }
  exchange.refuse_writes(fault_of(section, shared_.target.name), outbox);
}

bool Worker::mend(Exchange& exchange, const SqlError& error, Outbox& outbox) {
  if (const std::optional<std::int64_t> bucket = missing_bucket(error)) return make_partition(*bucket);
  // serialization_failure and deadlock_detected: somebody else's tool changed records; the transaction did not happen.
  if (error.state == "40001" || error.state == "40P01") return true;
  if (error.state == kOtherMarker || says_gone(error)) {
    if (!connection_->usable() || !shared_.admit(*connection_)) return false;
    const Status may_claim = shared_.may_claim();
    if (!may_claim) exchange.refuse_claims(may_claim.fault(), outbox);
    return error.state == kOtherMarker;
  }
  // read_only_sql_transaction: no primary any more. The next connection looks at who is there.
  if (error.state == "25006") connection_->give_up();
  return false;
}

bool Worker::make_partition(std::int64_t bucket) {
  Statement statement{"SELECT oncekey.make_partition($1)", {}};
  statement.params.int8(bucket);
  const Section made = connection_->run(statement, deadline_in(shared_.call_timeout));
  if (made.outcome == SectionOutcome::committed) return true;
  shared_.log.warning("partition_not_made", {{"store", shared_.target.name}, {"reason", made.error.message}});
  return false;
}

} // namespace oncekey::postgres
