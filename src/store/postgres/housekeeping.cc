#include "store/postgres/housekeeping.h"

#include "base/backoff.h"
#include "base/durations.h"
#include "core/record_codec.h"
#include "store/common/listing.h"
#include "store/postgres/sql_batch.h"

#include <fmt/format.h>
#include <pthread.h>

#include <limits>

namespace oncekey::postgres {
namespace {

constexpr Millis kRoundEvery{1000};
constexpr Millis kLookEvery{10'000};
constexpr Millis kMeasureEvery{5000};
// A partition is made this long before its first record, or an eighth of its width if that is less.
constexpr Millis kMadeAheadMax{60'000};
// Longer than a call's: only an operator waits for these.
constexpr Millis kListTime{20'000};
constexpr Millis kDropTime{10'000};
// What the server ends by itself: more than any of the above.
constexpr Millis kStatementTimeMax{30'000};
// A long reader has the table; each try holds all calls up for a moment.
constexpr Millis kDropPause{30'000};

constexpr const char* kPartitions =
    "SELECT c.relname::text, i.inhparent IS NOT NULL FROM pg_class c "
    "LEFT JOIN pg_inherits i ON i.inhrelid = c.oid WHERE c.relnamespace = 'oncekey'::regnamespace AND c.relkind = 'r' "
    "AND c.relname ~ '^record_[0-9]+_[0-9]+$'";
constexpr const char* kMeasure =
    "SELECT coalesce(sum(greatest(c.reltuples, 0)), 0)::int8, coalesce(sum(pg_total_relation_size(c.oid)), 0)::int8 "
    "FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'oncekey.record'::regclass";
// Behind the columns of oncekey.answer.
enum ListColumn : int { list_id = 18, list_front, browse_looked, browse_fitting, browse_last_time, browse_last_id };
// In the order of oncekey.answer, with the id and the front of the response at the end: responses may be long, and
// none of what follows is shown.
std::string list_columns() {
  return fmt::format(
      "0::int4, 2::int2, m.moment, r.fence, r.took_over, r.rerun, r.state, r.first_received, r.expires_at, "
      "r.lease_until, r.settled_at, r.fingerprint, r.claimed_by, r.route, r.key, r.method, r.target, NULL::bytea, "
      "r.id, substring(r.response FROM 1 FOR {})",
      kResponseFrontBytes);
}
constexpr std::string_view kList =
    "SELECT {} FROM oncekey.record r, (SELECT oncekey.clock() + $1 AS moment) m "
    "WHERE r.state <> 4 AND r.expires_at > m.moment AND ($2 = 0 OR r.state = $2) "
    "AND (NOT $3 OR r.state = 1 AND r.lease_until <= m.moment) AND r.id BETWEEN $4 AND $5 LIMIT $6";

// State 1 is that of StoredJob::state_at().
constexpr const char* kListJobs =
    "SELECT m.moment, j.* FROM oncekey.job j, (SELECT oncekey.clock() + $1 AS moment) m "
    "WHERE j.expires_at > m.moment AND j.id BETWEEN $4 AND $5 AND ($3 = '' OR j.route = $3) "
    "AND j.staged_at >= $7 AND j.staged_at < $8 "
    "AND ($2 = 0 OR $2 = CASE WHEN j.state = 2 AND j.due_at <= m.moment THEN 1 ELSE j.state END) LIMIT $6";
constexpr const char* kCountJobs =
    "SELECT j.route, j.state, count(*) FROM ("
    "SELECT * FROM oncekey.job WHERE state IN (1, 2) AND NOT behind UNION ALL "
    "SELECT * FROM oncekey.job WHERE state IN (1, 2) AND behind AND queue IS NOT NULL UNION ALL "
    "SELECT * FROM oncekey.job WHERE state = 5) j WHERE j.expires_at > oncekey.clock() + $1 GROUP BY j.route, j.state";
// Expired jobs deleted in one round.
constexpr int kForgottenPerRound = 1000;

// What browse looks at, newest first.
constexpr std::string_view kAllRecords = "oncekey.record r";
constexpr std::string_view kUnsettledRecords = "oncekey.unsettled u JOIN oncekey.record r ON r.id = u.id";
constexpr std::size_t kLooksPerCall = 1000;
constexpr std::size_t kSearchLooksPerCall = 20'000;

// As is_shown() of store/common/listing.h has it: one for each of KeysShown, in its order.
constexpr std::string_view kConditions[] = {
    "true",
    "(r.state = 3 OR r.state = 1 AND r.lease_until <= m.moment AND NOT r.rerun)",     // waiting
    "NOT (r.state = 3 OR r.state = 1 AND r.lease_until <= m.moment AND NOT r.rerun)", // others
    "r.state = 1",                                                                    // in_progress
    "(r.state = 1 AND r.lease_until <= m.moment AND NOT r.rerun)",                    // abandoned
    "r.state = 3",                                                                    // indeterminate
    "r.state = 2",                                                                    // completed
};
static_assert(std::size(kConditions) == static_cast<std::size_t>(KeysShown::completed) + 1);

// A look at $7 records behind a place, newest first by the index of each partition, and up to $6 lines of those that
// fit. The lines are as in kList; each has the numbers of the look behind it, and there is at least one row for them.
std::string browse_sql(std::string_view records, std::string_view condition) {
  return fmt::format(
      "WITH m AS MATERIALIZED (SELECT oncekey.clock() + $1 AS moment), looked AS MATERIALIZED ("
      "SELECT r.bucket, r.id, r.first_received, r.expires_at > m.moment AND ($2 = '' OR r.key = $2) "
      "AND ($3 = '' OR r.route = $3) AND {1} AS fits "
      "FROM {0} CROSS JOIN m WHERE r.first_received <= $4 AND (r.first_received < $4 OR r.id < $5) "
      "ORDER BY r.first_received DESC, r.id DESC LIMIT $7), "
      "numbers AS (SELECT count(*) AS looked, count(*) FILTER (WHERE l.fits) AS fitting FROM looked l), "
      "last AS (SELECT l.first_received, l.id FROM looked l ORDER BY l.first_received, l.id LIMIT 1), "
      "lines AS (SELECT l.bucket, l.id FROM looked l WHERE l.fits "
      "ORDER BY l.first_received DESC, l.id DESC LIMIT $6) "
      "SELECT {2}, n.looked, n.fitting, last.first_received, last.id "
      "FROM numbers n CROSS JOIN m LEFT JOIN last ON true "
      "LEFT JOIN (lines JOIN oncekey.record r ON r.bucket = lines.bucket AND r.id = lines.id) ON true "
      "ORDER BY r.first_received DESC, r.id DESC",
      records, condition, list_columns());
}

Result<RecordId> id_of(std::string_view bytes) {
  RecordId id;
  if (!copy_exactly(bytes, id.bytes)) return corrupt("a stored id does not have 32 bytes");
  return id;
}

Status read_lines(const Section& section, std::vector<Listed>& lines) {
  for (const Row row : rows_of(section.result())) {
    if (row.is_null(list_id)) continue; // nothing fits: the row has the numbers of a look alone
    const Result<RecordId> id = id_of(row.bytes(list_id));
    if (!id) return id.fault();
    Result<Record> record = record_of(row, *id);
    if (!record) return std::move(record).fault();
    Listed& line = lines.emplace_back(*id, *std::move(record));
    if (!row.is_null(list_front)) line.record.response = response_at_front(row.bytes(list_front));
  }
  return ok_status();
}

// record_WIDTH_INDEX: the bucket's name with another beginning and another separator.
std::optional<BucketId> bucket_of_partition(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name.starts_with("record-") ? bucket_from_name("bucket-" + name.substr(7)) : std::nullopt;
}

// As oncekey.bucket_of() has it.
std::int64_t number_of(const BucketId& id) { return id.end().time_since_epoch().count() << 6 | id.width_log2; }

// The first and the last id that begin with these hex digits; nothing if they are not.
struct IdRange {
  RecordId first;
  RecordId last;
};
std::optional<IdRange> ids_with(const std::string& prefix) {
  const std::string padding(64 - std::min<std::size_t>(prefix.size(), 64), '0');
  const std::optional<RecordId> first = record_id_from_hex(prefix + padding);
  const std::optional<RecordId> last = record_id_from_hex(prefix + std::string(padding.size(), 'f'));
  if (!first || !last) return std::nullopt;
  return IdRange{*first, *last};
}

std::int64_t limit_of(std::size_t wanted) {
  return static_cast<std::int64_t>(std::min<std::size_t>(wanted, 1'000'000));
}

template <class State>
std::int16_t number_or_zero(const std::optional<State>& state) {
  return state ? static_cast<std::int16_t>(*state) : std::int16_t{0};
}

} // namespace

Housekeeping::Housekeeping(PostgresState& state, PostgresOptions::Maintenance maintenance) : state_(state) {
  if (maintenance == PostgresOptions::Maintenance::in_background) thread_ = std::thread([this] { run(); });
}

Housekeeping::~Housekeeping() {
  {
    const std::lock_guard lock(mutex_);
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  const Fault closed = unavailable("the store is being closed");
  for (const Question& question : questions_) question(&closed);
}

void Housekeeping::run() {
  pthread_setname_np(pthread_self(), "store-upkeep");
  Backoff backoff(Millis{50}, Millis{5000});
  Deadline next = std::chrono::steady_clock::now();
  while (!state_.stopping()) {
    answer_questions();
    if (std::chrono::steady_clock::now() >= next) {
      const Status done = round();
      if (done) backoff.reset();
      if (!done)
        state_.log.warning("store_upkeep_failed", {{"store", state_.target.name}, {"reason", done.fault().message}});
      next = deadline_in(done ? kRoundEvery : backoff.next());
    }
    std::unique_lock lock(mutex_);
    wake_.wait_until(lock, next, [this] { return state_.stopping() || !questions_.empty(); });
  }
}

Status Housekeeping::round() {
  const std::lock_guard turn(connection_mutex_);
  if (const Status connected = ensure_connection(); !connected) return connected;
  if (const Status counted = state_.count_tick(*connection_); !counted) return counted;
  if (!state_.marker.memory.memory()) return ok_status(); // there may be no tables
  const Result<std::vector<Partition>> present = partitions();
  if (!present) return present.fault();
  if (const Status made = make_ahead(*present); !made) return made;
  drop_ended(*present);
  const Result<Section> forgotten = run_statement(
      Statement("SELECT oncekey.forget_jobs($1, $2)", state_.skew().count(), kForgottenPerRound), kDropTime);
  if (!forgotten) return forgotten.fault();
  if (std::chrono::steady_clock::now() < measure_again_) return ok_status();
  measure_again_ = deadline_in(kMeasureEvery);
  return measure();
}

Status Housekeeping::ensure_connection() {
  if (connection_ && connection_->usable()) {
    if (std::chrono::steady_clock::now() < look_again_) return ok_status();
  } else {
    connection_.reset();
    Result<std::unique_ptr<Connection>> opened = state_.open_connection();
    if (!opened) return opened.fault();
    connection_ = *std::move(opened);
    limit_session(*connection_, kStatementTimeMax, deadline_in(state_.call_timeout));
  }
  look_again_ = deadline_in(kLookEvery);
  const Status admitted = state_.admit(*connection_);
  if (!admitted) connection_.reset();
  return admitted;
}

Result<Section> Housekeeping::run_statement(const Statement& statement, Millis longest) {
  Section section = connection_->run(statement, deadline_in(longest));
  if (!section.committed()) return unavailable(connection_->fault_of(section).message);
  return section;
}

Result<std::vector<Housekeeping::Partition>> Housekeeping::partitions() {
  const Result<Section> section = run_statement(Statement(kPartitions), state_.call_timeout);
  if (!section) return section.fault();
  std::vector<Partition> found;
  for (const Row row : rows_of(section->result())) {
    if (const auto bucket = bucket_of_partition(row.text(0))) found.push_back({row.text(0), *bucket, row.boolean(1)});
  }
  const std::lock_guard lock(mutex_);
  stats_.buckets = found.size();
  return found;
}

Status Housekeeping::make_ahead(const std::vector<Partition>& present) {
  const Time now = state_.clock.now() + state_.skew();
  for (const auto& [width_log2, retention] : state_.retentions()) {
    const Millis ahead = std::min(kMadeAheadMax, Millis{std::int64_t{1} << width_log2} / 8);
    const BucketId needed = bucket_of(now + retention + ahead, retention);
    const auto is_needed = [&](const Partition& partition) { return partition.bucket == needed; };
    if (std::any_of(present.begin(), present.end(), is_needed)) continue;
    const Result<Section> made =
        run_statement(Statement("SELECT oncekey.make_partition($1)", number_of(needed)), kDropTime);
    if (!made) return made.fault();
    const std::lock_guard lock(mutex_);
    ++stats_.buckets;
  }
  return ok_status();
}

void Housekeeping::drop_ended(const std::vector<Partition>& present) {
  if (std::chrono::steady_clock::now() < drop_again_) return;
  const Time now = state_.clock.now() + state_.skew();
  for (const Partition& partition : present) {
    if (partition.bucket.end() > now) continue;
    if (const Status dropped = drop(partition); !dropped) {
      state_.log.info("partition_not_dropped", {{"store", state_.target.name},
                                                {"partition", partition.name},
                                                {"reason", dropped.fault().message},
                                                {"again_in", format_duration(kDropPause)}});
      drop_again_ = deadline_in(kDropPause);
      return;
    }
  }
}

// A crash between the two steps leaves a table that is not read any more, which the next round finds.
Status Housekeeping::drop(const Partition& partition) {
  if (partition.attached) {
    const Result<Section> detached =
        run_statement(Statement("SELECT oncekey.detach_partition($1)", number_of(partition.bucket)), kDropTime);
    if (!detached) return detached.fault();
  }
  const std::string drop = "DROP TABLE IF EXISTS oncekey." + partition.name;
  const Result<Section> dropped = run_statement(Statement(drop.c_str()), kDropTime);
  if (!dropped) return dropped.fault();
  state_.log.info("partition_dropped", {{"store", state_.target.name}, {"partition", partition.name}});
  const std::lock_guard lock(mutex_);
  --stats_.buckets;
  return ok_status();
}

Status Housekeeping::measure() {
  const Result<Section> section = run_statement(Statement(kMeasure), kListTime);
  if (!section) return section.fault();
  const std::lock_guard lock(mutex_);
  stats_.records_estimate = section->row().count(0);
  stats_.bytes_on_disk = section->row().count(1);
  return ok_status();
}

StoreStats Housekeeping::stats() const {
  const std::lock_guard lock(mutex_);
  StoreStats stats = stats_;
  stats.syncs = state_.batches.load(std::memory_order_relaxed);
  stats.writes = state_.written.load(std::memory_order_relaxed);
  return stats;
}

void Housekeeping::answer_questions() {
  std::deque<Question> questions;
  {
    const std::lock_guard lock(mutex_);
    questions.swap(questions_);
  }
  for (const Question& question : questions) question(nullptr);
}

Result<Section> Housekeeping::ask_server(const Statement& statement, Unsettled unsettled) {
  const std::lock_guard turn(connection_mutex_);
  if (const Status connected = ensure_connection(); !connected) return connected.fault();
  if (unsettled == Unsettled::up_to_date) {
    const Statement note("SELECT oncekey.note_unsettled($1)", state_.skew().count());
    if (Result<Section> noted = run_statement(note, kListTime); !noted) return noted;
  }
  return run_statement(statement, kListTime);
}

Result<std::vector<Listed>> Housekeeping::list(const ListRequest& request) {
  std::vector<Listed> listed;
  const std::optional<IdRange> ids = ids_with(request.id_prefix);
  if (!ids) return listed;
  const std::string sql = fmt::format(kList, list_columns());
  const Result<Section> section =
      ask_server(Statement(sql.c_str(), state_.skew().count(), number_or_zero(request.state), request.abandoned_only,
                           bytea_of(ids->first), bytea_of(ids->last), limit_of(request.limit)));
  if (!section) return section.fault();
  if (const Status read = read_lines(*section, listed); !read) return read.fault();
  return listed;
}

Result<JobPage> Housekeeping::list_jobs(const JobListRequest& request) {
  JobPage page;
  const std::optional<IdRange> ids = ids_with(request.id_prefix);
  if (!ids) return page;
  const std::int64_t limit = limit_of(request.limit);
  // One more tells whether there are others.
  const Result<Section> section = ask_server(
      Statement(kListJobs, state_.skew().count(), number_or_zero(request.state),
                as_text(request.route, TextEncoding::utf8), bytea_of(ids->first), bytea_of(ids->last), limit + 1,
                request.staged_from.time_since_epoch().count(), request.staged_before.time_since_epoch().count()));
  if (!section) return section.fault();
  page.whole = PQntuples(section->result()) <= limit;
  for (const Row row : rows_of(section->result()) | std::views::take(limit)) {
    Result<StoredJob> job = job_of(row);
    if (!job) return std::move(job).fault();
    page.jobs.push_back(*std::move(job));
  }
  return page;
}

Result<std::vector<JobCount>> Housekeeping::count_jobs() {
  const Result<Section> section = ask_server(Statement(kCountJobs, state_.skew().count()));
  if (!section) return section.fault();
  std::vector<JobCount> counts;
  for (const Row row : rows_of(section->result())) {
    counts.push_back({row.text(0), static_cast<JobState>(row.int2(1)), row.count(2)});
  }
  return counts;
}

Result<std::vector<GatewayBeat>> Housekeeping::beat(const GatewayBeat& mine) {
  const Result<Section> section = ask_server(Statement(
      "SELECT instance, name, version, state, started, seen FROM oncekey.beat($1, $2, $3, $4, $5, $6, $7)",
      state_.skew().count(), as_text(mine.instance, TextEncoding::utf8), as_text(mine.name, TextEncoding::utf8),
      as_text(mine.version, TextEncoding::utf8), as_text(mine.state, TextEncoding::utf8),
      mine.started.time_since_epoch().count(), kGatewayForgottenAfter.count()));
  if (!section) return section.fault();
  std::vector<GatewayBeat> beats;
  for (const Row row : rows_of(section->result())) {
    beats.push_back({row.text(0), row.text(1), row.text(2), row.text(3), row.time(4), row.time(5)});
  }
  return beats;
}

Result<WaitingKeys> Housekeeping::count_waiting() {
  const Result<Section> section =
      ask_server(Statement("SELECT abandoned, indeterminate FROM oncekey.count_waiting($1, $2)", state_.skew().count(),
                           static_cast<std::int64_t>(kWaitingCountMax)),
                 Unsettled::up_to_date);
  if (!section) return section.fault();
  return WaitingKeys{section->row().count(0), section->row().count(1)};
}

Result<BrowsePage> Housekeeping::browse(const BrowseRequest& request) {
  const bool waiting = only_waiting(request.shown);
  const std::string sql =
      browse_sql(waiting ? kUnsettledRecords : kAllRecords, kConditions[static_cast<std::size_t>(request.shown)]);
  // As many as will be needed, it is hoped; the caller goes on from there.
  const std::size_t hoped = request.key.empty() ? std::max(kLooksPerCall, 4 * request.limit) : kSearchLooksPerCall;
  const auto looks = static_cast<std::int64_t>(std::min(request.look_max, hoped));
  const auto limit = static_cast<std::int64_t>(request.limit);
  const BrowsePlace before =
      request.after.value_or(BrowsePlace{Time{Millis{std::numeric_limits<std::int64_t>::max()}}, {}});
  const Result<Section> section = ask_server(
      Statement(sql.c_str(), state_.skew().count(), as_text(request.key, TextEncoding::utf8),
                as_text(request.route, TextEncoding::utf8),
                std::int64_t{before.first_received.time_since_epoch().count()}, bytea_of(before.id), limit, looks),
      waiting ? Unsettled::up_to_date : Unsettled::as_they_are);
  if (!section) return section.fault();
  BrowsePage page;
  if (const Status read = read_lines(*section, page.lines); !read) return read.fault();
  if (PQntuples(section->result()) == 0) return page;
  const Row numbers = section->row();
  page.looked = numbers.count(browse_looked);
  const bool more_lines = numbers.int8(browse_fitting) > limit;
  const bool more_records = numbers.int8(browse_looked) == looks;
  page.whole = !more_lines && !more_records;
  if (more_lines) {
    page.next = BrowsePlace{page.lines.back().record.first_received, page.lines.back().id};
  } else if (more_records) {
    const Result<RecordId> last = id_of(numbers.bytes(browse_last_id));
    if (!last) return last.fault();
    page.next = BrowsePlace{numbers.time(browse_last_time), *last};
  }
  return page;
}

} // namespace oncekey::postgres
