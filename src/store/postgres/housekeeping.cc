#include "store/postgres/housekeeping.h"

#include "base/durations.h"
#include "core/record_codec.h"
#include "store/common/listing.h"
#include "store/postgres/single_calls.h"
#include "store/postgres/sql_batch.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <utility>

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
// In the order of oncekey.answer, with the id and the front of the response at the end: responses may be long, and
// none of what follows is shown.
constexpr const char* kList =
    "SELECT 0::int4, 2::int2, m.moment, r.fence, r.took_over, r.rerun, r.state, r.first_received, r.expires_at, "
    "r.lease_until, r.settled_at, r.fingerprint, r.claimed_by, r.route, r.key, r.method, r.target, NULL::bytea, "
    "r.id, substring(r.response FROM 1 FOR $7) "
    "FROM oncekey.record r, (SELECT oncekey.clock() + $1 AS moment) m "
    "WHERE r.state <> 4 AND r.expires_at > m.moment AND ($2 = 0 OR r.state = $2) "
    "AND (NOT $3 OR r.state = 1 AND r.lease_until <= m.moment) AND r.id BETWEEN $4 AND $5 LIMIT $6";
constexpr int kListIdColumn = 18;
constexpr int kListFrontColumn = 19;

// State 1 is that of StoredJob::state_at().
constexpr const char* kListJobs =
    "SELECT m.moment, j.* FROM oncekey.job j, (SELECT oncekey.clock() + $1 AS moment) m "
    "WHERE j.expires_at > m.moment AND j.id BETWEEN $4 AND $5 AND ($3 = '' OR j.route = $3) "
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
constexpr int kBrowseLookedColumn = 20;
constexpr int kBrowseFittingColumn = 21;
constexpr int kBrowseLastTimeColumn = 22;
constexpr int kBrowseLastIdColumn = 23;

// As is_shown() of store/common/listing.h has it.
std::string_view condition_of(KeysShown shown) {
  switch (shown) {
    case KeysShown::all:
      return "true";
    case KeysShown::waiting:
      return "(r.state = 3 OR r.state = 1 AND r.lease_until <= m.moment AND NOT r.rerun)";
    case KeysShown::others:
      return "NOT (r.state = 3 OR r.state = 1 AND r.lease_until <= m.moment AND NOT r.rerun)";
    case KeysShown::in_progress:
      return "r.state = 1";
    case KeysShown::abandoned:
      return "(r.state = 1 AND r.lease_until <= m.moment AND NOT r.rerun)";
    case KeysShown::indeterminate:
      return "r.state = 3";
    case KeysShown::completed:
      return "r.state = 2";
  }
  return "false";
}

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
      "SELECT 0::int4, 2::int2, m.moment, r.fence, r.took_over, r.rerun, r.state, r.first_received, r.expires_at, "
      "r.lease_until, r.settled_at, r.fingerprint, r.claimed_by, r.route, r.key, r.method, r.target, NULL::bytea, "
      "r.id, substring(r.response FROM 1 FOR $8), n.looked, n.fitting, last.first_received, last.id "
      "FROM numbers n CROSS JOIN m LEFT JOIN last ON true "
      "LEFT JOIN (lines JOIN oncekey.record r ON r.bucket = lines.bucket AND r.id = lines.id) ON true "
      "ORDER BY r.first_received DESC, r.id DESC",
      records, condition);
}

Result<RecordId> id_of(std::string_view bytes) {
  RecordId id;
  if (bytes.size() != id.bytes.size()) return corrupt("a stored id does not have 32 bytes");
  std::memcpy(id.bytes.data(), bytes.data(), bytes.size());
  return id;
}

Result<Listed> line_of(const Row& row) {
  const Result<RecordId> id = id_of(row.bytes(kListIdColumn));
  if (!id) return id.fault();
  Result<Record> record = record_of(row, *id);
  if (!record) return std::move(record).fault();
  Listed line{*id, *std::move(record)};
  if (!row.is_null(kListFrontColumn)) line.record.response = response_at_front(row.bytes(kListFrontColumn));
  return line;
}

// record_WIDTH_INDEX; the server has checked the shape.
std::optional<BucketId> bucket_of_partition(std::string_view name) {
  constexpr std::string_view kPrefix = "record_";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  BucketId id;
  const char* const end = name.data() + name.size();
  const auto [middle, width_error] = std::from_chars(name.data() + kPrefix.size(), end, id.width_log2);
  if (width_error != std::errc{} || middle == end || *middle != '_') return std::nullopt;
  const auto [rest, index_error] = std::from_chars(middle + 1, end, id.index);
  if (index_error != std::errc{} || rest != end) return std::nullopt;
  if (id.width_log2 < kNarrowestBucketLog2 || id.width_log2 > kWidestBucketLog2) return std::nullopt;
  return id;
}

// As oncekey.bucket_of() has it.
std::int64_t number_of(const BucketId& id) { return id.end().time_since_epoch().count() << 6 | id.width_log2; }

// The first or last id that begins with these hex digits; nothing if they are not.
std::optional<std::string> id_bound(std::string_view prefix, char padding) {
  if (prefix.size() > 64) return std::nullopt;
  std::string hex(prefix);
  std::transform(hex.begin(), hex.end(), hex.begin(), [](char digit) {
    return digit >= 'A' && digit <= 'F' ? static_cast<char>(digit - 'A' + 'a') : digit;
  });
  const std::optional<RecordId> id = record_id_from_hex(hex.append(64 - hex.size(), padding));
  if (!id) return std::nullopt;
  return std::string(id->bytes.begin(), id->bytes.end());
}

} // namespace

Housekeeping::Housekeeping(PostgresState& state, Rounds rounds) : state_(state) {
  if (rounds == Rounds::in_background) thread_ = std::thread([this] { run(); });
}

Housekeeping::~Housekeeping() {
  {
    const std::lock_guard lock(mutex_);
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  for (const Question& question : questions_) question.refuse(unavailable("the store is being closed"));
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
  if (const Status forgotten = forget_jobs(); !forgotten) return forgotten;
  if (std::chrono::steady_clock::now() < measure_again_) return ok_status();
  measure_again_ = deadline_in(kMeasureEvery);
  return measure();
}

Status Housekeeping::ensure_connection() {
  if (connection_ && connection_->usable()) {
    if (std::chrono::steady_clock::now() < look_again_) return ok_status();
  } else {
    connection_.reset();
    Result<std::unique_ptr<Connection>> opened =
        Connection::open(state_.target, deadline_in(state_.call_timeout), state_.stopping());
    if (!opened) return opened.fault();
    connection_ = *std::move(opened);
    limit_session(*connection_, kStatementTimeMax, deadline_in(state_.call_timeout));
  }
  look_again_ = deadline_in(kLookEvery);
  const Status admitted = state_.admit(*connection_);
  if (!admitted) connection_.reset();
  return admitted;
}

Result<std::vector<Housekeeping::Partition>> Housekeeping::partitions() {
  const Section section = connection_->run({kPartitions, {}}, deadline_in(state_.call_timeout));
  if (section.outcome != SectionOutcome::committed) return fault_of(section, state_.target.name);
  std::vector<Partition> found;
  const PGresult* const result = section.results[0].get();
  for (int at = 0; at < PQntuples(result); ++at) {
    const Row row(result, at);
    const std::optional<BucketId> bucket = bucket_of_partition(row.bytes(0));
    if (bucket) found.push_back({std::string(row.bytes(0)), *bucket, row.boolean(1)});
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
    Statement statement{"SELECT oncekey.make_partition($1)", {}};
    statement.params.int8(number_of(needed));
    const Section made = connection_->run(statement, deadline_in(kDropTime));
    if (made.outcome != SectionOutcome::committed) return fault_of(made, state_.target.name);
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
    Statement statement{"SELECT oncekey.detach_partition($1)", {}};
    statement.params.int8(number_of(partition.bucket));
    const Section detached = connection_->run(statement, deadline_in(kDropTime));
    if (detached.outcome != SectionOutcome::committed) return fault_of(detached, state_.target.name);
  }
  const Section dropped =
      connection_->run_script("DROP TABLE IF EXISTS oncekey." + partition.name, deadline_in(kDropTime));
  if (dropped.outcome != SectionOutcome::committed) return fault_of(dropped, state_.target.name);
  state_.log.info("partition_dropped", {{"store", state_.target.name}, {"partition", partition.name}});
  const std::lock_guard lock(mutex_);
  --stats_.buckets;
  return ok_status();
}

Status Housekeeping::forget_jobs() {
  Statement statement{"SELECT oncekey.forget_jobs($1, $2)", {}};
  statement.params.int8(state_.skew().count()).int4(kForgottenPerRound);
  const Section forgotten = connection_->run(statement, deadline_in(kDropTime));
  if (forgotten.outcome != SectionOutcome::committed) return fault_of(forgotten, state_.target.name);
  return ok_status();
}

Status Housekeeping::measure() {
  const Section section = connection_->run({kMeasure, {}}, deadline_in(kListTime));
  if (section.outcome != SectionOutcome::committed) return fault_of(section, state_.target.name);
  const Row row(section.results[0].get(), 0);
  const std::lock_guard lock(mutex_);
  stats_.records_estimate = static_cast<std::uint64_t>(row.int8(0));
  stats_.bytes_on_disk = static_cast<std::uint64_t>(row.int8(1));
  return ok_status();
}

StoreStats Housekeeping::stats() const {
  const std::lock_guard lock(mutex_);
  StoreStats stats = stats_;
  stats.syncs = state_.batches.load(std::memory_order_relaxed);
  stats.writes = state_.written.load(std::memory_order_relaxed);
  return stats;
}

template <class T>
void Housekeeping::ask(std::function<Result<T>()> look, Done<T> done) {
  if (!thread_.joinable()) return done(look());
  const std::lock_guard lock(mutex_);
  questions_.push_back({[look = std::move(look), done] { done(look()); }, [done](const Fault& fault) { done(fault); }});
  wake_.notify_all();
}

void Housekeeping::list(const ListRequest& request, Done<std::vector<Listed>> done) {
  ask<std::vector<Listed>>([this, request] { return list_now(request); }, std::move(done));
}

void Housekeeping::browse(const BrowseRequest& request, Done<BrowsePage> done) {
  ask<BrowsePage>([this, request] { return browse_now(request); }, std::move(done));
}

void Housekeeping::count_waiting(Done<WaitingKeys> done) {
  ask<WaitingKeys>([this] { return count_now(); }, std::move(done));
}

void Housekeeping::list_jobs(const JobListRequest& request, Done<JobPage> done) {
  ask<JobPage>([this, request] { return list_jobs_now(request); }, std::move(done));
}

void Housekeeping::count_jobs(Done<std::vector<JobCount>> done) {
  ask<std::vector<JobCount>>([this] { return count_jobs_now(); }, std::move(done));
}

void Housekeeping::answer_questions() {
  for (;;) {
    Question next;
    {
      const std::lock_guard lock(mutex_);
      if (questions_.empty()) return;
      next = std::move(questions_.front());
      questions_.pop_front();
    }
    next.answer();
  }
}

Result<std::vector<Listed>> Housekeeping::list_now(const ListRequest& request) {
  const std::optional<std::string> low = id_bound(request.id_prefix, '0');
  const std::optional<std::string> high = id_bound(request.id_prefix, 'f');
  if (!low || !high) return std::vector<Listed>{};
  Statement statement{kList, {}};
  statement.params.int8(state_.skew().count());
  statement.params.int2(request.state ? static_cast<std::int16_t>(*request.state) : std::int16_t{0});
  statement.params.boolean(request.abandoned_only).bytes(*low).bytes(*high);
  statement.params.int8(static_cast<std::int64_t>(std::min<std::size_t>(request.limit, 1'000'000)));
  statement.params.int4(kResponseFrontBytes);
  const Result<Section> section = ask_server(statement);
  if (!section) return section.fault();
  std::vector<Listed> listed;
  const PGresult* const result = section->results[0].get();
  for (int at = 0; at < PQntuples(result); ++at) {
    Result<Listed> line = line_of(Row(result, at));
    if (!line) return std::move(line).fault();
    listed.push_back(*std::move(line));
  }
  return listed;
}

Result<JobPage> Housekeeping::list_jobs_now(const JobListRequest& request) {
  JobPage page;
  const std::optional<std::string> low = id_bound(request.id_prefix, '0');
  const std::optional<std::string> high = id_bound(request.id_prefix, 'f');
  if (!low || !high) return page;
  Statement statement{kListJobs, {}};
  statement.params.int8(state_.skew().count());
  statement.params.int2(request.state ? static_cast<std::int16_t>(*request.state) : std::int16_t{0});
  statement.params.text(as_text(request.route, TextEncoding::utf8)).bytes(*low).bytes(*high);
  const std::size_t limit = std::min<std::size_t>(request.limit, 1'000'000);
  statement.params.int8(static_cast<std::int64_t>(limit) + 1); // one more tells whether there are others
  const Result<Section> section = ask_server(statement);
  if (!section) return section.fault();
  const PGresult* const result = section->results[0].get();
  for (int at = 0; at < PQntuples(result); ++at) {
    if (page.jobs.size() == limit) {
      page.whole = false;
      break;
    }
    Result<StoredJob> job = job_of(Row(result, at));
    if (!job) return std::move(job).fault();
    page.jobs.push_back(*std::move(job));
  }
  return page;
}

Result<std::vector<JobCount>> Housekeeping::count_jobs_now() {
  Statement statement{kCountJobs, {}};
  statement.params.int8(state_.skew().count());
  const Result<Section> section = ask_server(statement);
  if (!section) return section.fault();
  std::vector<JobCount> counts;
  const PGresult* const result = section->results[0].get();
  for (int at = 0; at < PQntuples(result); ++at) {
    const Row row(result, at);
    counts.push_back(
        {std::string(row.bytes(0)), static_cast<JobState>(row.int2(1)), static_cast<std::uint64_t>(row.int8(2))});
  }
  return counts;
}

Result<Section> Housekeeping::ask_server(const Statement& statement) {
  const std::lock_guard turn(connection_mutex_);
  if (const Status connected = ensure_connection(); !connected) return connected.fault();
  Section section = connection_->run(statement, deadline_in(kListTime));
  if (section.outcome != SectionOutcome::committed) return unavailable(fault_of(section, state_.target.name).message);
  return section;
}

Status Housekeeping::note_unsettled() {
  Statement statement{"SELECT oncekey.note_unsettled($1)", {}};
  statement.params.int8(state_.skew().count());
  const Section noted = connection_->run(statement, deadline_in(kListTime));
  if (noted.outcome != SectionOutcome::committed) return unavailable(fault_of(noted, state_.target.name).message);
  return ok_status();
}

Result<WaitingKeys> Housekeeping::count_now() {
  const std::lock_guard turn(connection_mutex_);
  if (const Status connected = ensure_connection(); !connected) return connected.fault();
  if (const Status noted = note_unsettled(); !noted) return noted.fault();
  Statement statement{"SELECT abandoned, indeterminate FROM oncekey.count_waiting($1, $2)", {}};
  statement.params.int8(state_.skew().count()).int8(static_cast<std::int64_t>(kWaitingCountMax));
  const Section section = connection_->run(statement, deadline_in(kListTime));
  if (section.outcome != SectionOutcome::committed) return unavailable(fault_of(section, state_.target.name).message);
  const Row row(section.results[0].get(), 0);
  return WaitingKeys{static_cast<std::uint64_t>(row.int8(0)), static_cast<std::uint64_t>(row.int8(1))};
}

Result<BrowsePage> Housekeeping::browse_now(const BrowseRequest& request) {
  const std::lock_guard turn(connection_mutex_);
  if (const Status connected = ensure_connection(); !connected) return connected.fault();
  const bool waiting = only_waiting(request.shown);
  if (waiting) {
    if (const Status noted = note_unsettled(); !noted) return noted.fault();
  }
  const std::string sql = browse_sql(waiting ? kUnsettledRecords : kAllRecords, condition_of(request.shown));
  // As many as will be needed, it is hoped; the caller goes on from there.
  const std::size_t hoped = request.key.empty() ? std::max(kLooksPerCall, 4 * request.limit) : kSearchLooksPerCall;
  const auto looks = static_cast<std::int64_t>(std::min(request.look_max, hoped));
  const auto limit = static_cast<std::int64_t>(request.limit);
  Statement statement{sql.c_str(), {}};
  statement.params.int8(state_.skew().count());
  statement.params.text(as_text(request.key, TextEncoding::utf8)).text(as_text(request.route, TextEncoding::utf8));
  statement.params.int8(request.after ? request.after->first_received.time_since_epoch().count()
                                      : std::numeric_limits<std::int64_t>::max());
  const RecordId before = request.after ? request.after->id : RecordId{};
  statement.params.bytes({reinterpret_cast<const char*>(before.bytes.data()), before.bytes.size()});
  statement.params.int8(limit).int8(looks).int4(kResponseFrontBytes);
  const Section section = connection_->run(statement, deadline_in(kListTime));
  if (section.outcome != SectionOutcome::committed) return unavailable(fault_of(section, state_.target.name).message);
  BrowsePage page;
  const PGresult* const result = section.results[0].get();
  for (int at = 0; at < PQntuples(result); ++at) {
    const Row row(result, at);
    if (row.is_null(kListIdColumn)) continue; // nothing fits: the row has the numbers alone
    Result<Listed> line = line_of(row);
    if (!line) return std::move(line).fault();
    page.lines.push_back(*std::move(line));
  }
  if (PQntuples(result) == 0) return page;
  const Row numbers(result, 0);
  page.looked = static_cast<std::uint64_t>(numbers.int8(kBrowseLookedColumn));
  const bool more_lines = numbers.int8(kBrowseFittingColumn) > limit;
  const bool more_records = numbers.int8(kBrowseLookedColumn) == looks;
  page.whole = !more_lines && !more_records;
  if (more_lines) {
    page.next = BrowsePlace{page.lines.back().record.first_received, page.lines.back().id};
  } else if (more_records) {
    const Result<RecordId> last = id_of(numbers.bytes(kBrowseLastIdColumn));
    if (!last) return last.fault();
    page.next = BrowsePlace{Time{Millis{numbers.int8(kBrowseLastTimeColumn)}}, *last};
  }
  return page;
}

} // namespace oncekey::postgres
