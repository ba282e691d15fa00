#include "admin/overview.h"

#include "admin/record_json.h"
#include "base/enum_name.h"
#include "base/machine_memory.h"
#include "base/masked_url.h"
#include "base/process_usage.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

namespace oncekey {
namespace {

namespace json = boost::json;

constexpr std::size_t kShownStorms = 20;
constexpr std::size_t kShownLeases = 20;
// Six steps without a word.
constexpr Millis kSilentAfter = std::chrono::seconds(30);

double seconds_of(Time time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }

std::string short_random() { return fmt::format("{:08x}", static_cast<std::uint32_t>(random_u64())); }

void add_buckets(const prometheus::Histogram& histogram, BucketCounts& counts) {
  const auto buckets = histogram.Collect().histogram.bucket;
  counts.resize(std::max(counts.size(), buckets.size()));
  std::uint64_t before = 0;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    counts[i] += buckets[i].cumulative_count - before;
    before = buckets[i].cumulative_count;
  }
}

BucketCounts since(const BucketCounts& now, const BucketCounts& before) {
  BucketCounts counts(now.size());
  for (std::size_t i = 0; i < now.size(); ++i) counts[i] = now[i] - (i < before.size() ? before[i] : 0);
  return counts;
}

json::value number(double value) {
  if (std::isnan(value)) return nullptr;
  if (value == std::floor(value) && std::abs(value) < 9e15) return static_cast<std::int64_t>(value);
  return std::round(value * 1000) / 1000; // microseconds are enough
}

} // namespace

Readiness readiness(const GatewayShared& shared, const Server* gateway) {
  Readiness ready;
  if (gateway == nullptr) ready = {"starting", "starting"};
  if (shared.leaving.load()) ready = {"draining", "draining"};
  if (const Status healthy = shared.store.healthy(); !healthy) ready = {"store", healthy.fault().message};
  return ready;
}

Overview::Overview(GatewayShared& shared, const StoreCounts& counts, Loop& loop, std::string version)
    : shared_(shared),
      counts_(counts),
      loop_(loop),
      version_(std::move(version)),
      instance_(short_random()),
      started_(wall_clock()),
      started_at_(std::chrono::steady_clock::now()),
      memory_limit_(memory_limit().value_or(0)),
      history_(static_cast<std::uint64_t>(seconds_of(started_))),
      last_(totals()),
      timer_(loop, [this] { look(); }) {}

void Overview::stop() {
  stopped_ = true;
  timer_.clear();
  // The last word: the others know that it ends as planned.
  if (!beating_.exchange(true)) spawn(beat());
}

Overview::Totals Overview::totals() const {
  Totals totals;
  const auto add = [&](const RouteMetrics& route) {
    route.each_decision([&](std::string_view decision, double count) {
      if (const auto column = column_of_decision(decision))
        totals.decisions[static_cast<std::size_t>(*column)] += count;
    });
    add_buckets(route.upstream_seconds, totals.upstream);
  };
  add(shared_.metrics.no_route());
  for (std::size_t i = 0; i < shared_.metrics.routes(); ++i) add(shared_.metrics.route(i));
  add_buckets(shared_.metrics.claim_seconds, totals.store);
  add_buckets(shared_.metrics.complete_seconds, totals.store);
  return totals;
}

void Overview::look() {
  timer_.after(History::kStep);
  Totals now = totals();
  History::Row row{};
  const auto put = [&](HistoryColumn column, double value) { row[static_cast<std::size_t>(column)] = value; };
  for (std::size_t i = 0; i < kHistoryColumns; ++i) row[i] = now.decisions[i] - last_.decisions[i];
  put(HistoryColumn::at, std::floor(seconds_of(wall_clock())));
  const auto put_latency = [&](HistoryColumn p50, const BucketCounts& counts) {
    std::size_t column = static_cast<std::size_t>(p50);
    for (const double part : {0.5, 0.95, 0.99}) row[column++] = 1000 * percentile(kSeconds, counts, part);
  };
  put_latency(HistoryColumn::upstream_p50_ms, since(now.upstream, last_.upstream));
  put_latency(HistoryColumn::store_p50_ms, since(now.store, last_.store));
  put(HistoryColumn::in_flight, shared_.executing.load());
  put(HistoryColumn::waiters, static_cast<double>(shared_.waiters.waiting()));
  put(HistoryColumn::connections, gateway_ == nullptr ? 0 : gateway_->connections());
  put(HistoryColumn::keys_waiting, static_cast<double>(counts_.keys.abandoned + counts_.keys.indeterminate));
  const auto hottest = shared_.storms.hottest(std::chrono::steady_clock::now());
  put(HistoryColumn::storm_keys,
      static_cast<double>(std::count_if(hottest.begin(), hottest.end(), [](const Storms::HotKey& hot) {
        return hot.retries >= Storms::kStormRetries;
      })));
  double waiting = 0;
  double dead = 0;
  for (const JobCount& each : counts_.jobs) {
    if (each.state == JobState::waiting) waiting += static_cast<double>(each.count);
    if (each.state == JobState::dead) dead += static_cast<double>(each.count);
  }
  put(HistoryColumn::jobs_waiting, waiting);
  put(HistoryColumn::jobs_dead, dead);
  put(HistoryColumn::store_bytes, static_cast<double>(shared_.store.stats().bytes_on_disk));
  put(HistoryColumn::rss_bytes, static_cast<double>(process_usage().resident_bytes));
  history_.add(row);
  last_ = std::move(now);
  if (!beating_.exchange(true)) spawn(beat());
}

Task<void> Overview::beat() {
  using Beats = std::vector<GatewayBeat>;
  try {
    for (bool again = true; again;) {
      const bool last = stopped_.load();
      const Readiness ready = readiness(shared_, gateway_);
      GatewayBeat mine{instance_, shared_.name, version_, ready.state, started_, {}};
      Result<Beats> beats =
          co_await await_store<Beats>(loop_, [&](auto done) { shared_.store.beat(std::move(mine), std::move(done)); });
      if (beats) beats_ = std::move(beats).value();
      again = stopped_.load() && !last; // told to stop meanwhile
    }
  } catch (const std::exception& error) {
    shared_.log.warning("store_not_looked_at", {{"reason", error.what()}}); // out of memory, say
  }
  beating_ = false;
}

json::array Overview::gateways() const {
  json::array all;
  // By the clock of the store, on which they were seen.
  const Time now = shared_.store.now();
  for (const GatewayBeat& beat : beats_) {
    const bool mine = beat.instance == instance_;
    const Millis ago = std::max(Millis(0), now - beat.seen);
    const bool silent = ago >= kSilentAfter;
    // One that has drained is gone as planned. One that was started again under its name has replaced the earlier
    // process.
    const bool drained = silent && beat.state == "draining";
    const bool replaced = silent && std::any_of(beats_.begin(), beats_.end(), [&](const GatewayBeat& other) {
                            return other.name == beat.name && other.seen > beat.seen && other.started > beat.started;
                          });
    if (drained || replaced) continue;
    all.push_back(json::object{{"name", json_text(beat.name)},
                               {"instance", json_text(beat.instance)},
                               {"version", json_text(beat.version)},
                               {"started", iso_time(beat.started)},
                               {"last_seen", iso_time(beat.seen)},
                               {"seconds_ago", number(std::chrono::duration<double>(ago).count())},
                               {"state", silent ? json::value("silent") : json::value(json_text(beat.state))},
                               {"this", mine}});
  }
  return all;
}

json::object Overview::jobs() const {
  struct Counts {
    std::uint64_t waiting = 0;
    std::uint64_t taken = 0;
    std::uint64_t dead = 0;
  };
  std::map<std::string, Counts> by_destination;
  for (const Webhook& webhook : shared_.config().webhooks) by_destination[webhook.endpoint.name];
  for (const Endpoint& endpoint : shared_.config().destinations) by_destination[endpoint.name];
  Counts all;
  for (const JobCount& each : counts_.jobs) {
    for (Counts* counts : {&by_destination[each.route], &all}) {
      if (each.state == JobState::waiting) counts->waiting += each.count;
      if (each.state == JobState::taken) counts->taken += each.count;
      if (each.state == JobState::dead) counts->dead += each.count;
    }
  }
  json::array destinations;
  for (const auto& [name, counts] : by_destination) {
    destinations.push_back(json::object{{"destination", json_text(name)},
                                        {"waiting", counts.waiting},
                                        {"taken", counts.taken},
                                        {"dead", counts.dead},
                                        {"configured", has_endpoint(shared_.config(), name)}});
  }
  return {
      {"waiting", all.waiting}, {"taken", all.taken}, {"dead", all.dead}, {"destinations", std::move(destinations)}};
}

json::object Overview::storms(std::size_t limit) const {
  json::array keys;
  std::size_t stormy = 0;
  for (const Storms::HotKey& hot : shared_.storms.hottest(std::chrono::steady_clock::now())) {
    const bool storm = hot.retries >= Storms::kStormRetries;
    stormy += storm ? 1 : 0;
    if (keys.size() == limit) continue;
    keys.push_back(json::object{{"id", to_hex(hot.id)},
                                {"key", short_hash(hot.id)},
                                {"route", json_text(shared_.metrics.route(hot.route).route())},
                                {"retries", hot.retries},
                                {"storm", storm}});
  }
  return {{"within_seconds", Storms::kStretch.count()},
          {"waiters", shared_.waiters.waiting()},
          {"stormy", stormy},
          {"keys", std::move(keys)}};
}

json::object Overview::live() const {
  const Config& config = shared_.config();
  const Readiness ready = readiness(shared_, gateway_);
  const StoreStats stats = shared_.store.stats();
  const Status healthy = shared_.store.healthy();
  const std::optional<std::string> shortage = shared_.room.shortage();
  const StoreRoom::Disk disk = shared_.room.disk();
  const Limits& limits = config.limits;
  const std::string kind = config.store.substr(0, config.store.find(':'));

  json::object out;
  out["now"] = iso_time(wall_clock());
  out["gateway"] = json_text(shared_.name);
  out["version"] = version_;
  out["started"] = iso_time(started_);
  out["uptime_seconds"] =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - started_at_).count();
  out["status"] = ready.state;
  out["reason"] = ready.reason.empty() ? json::value() : json::value(json_text(ready.reason));
  out["store"] = json::object{{"url", json_text(masked_url(config.store))},
                              {"kind", json_text(kind)},
                              {"durability", json_text(to_string(shared_.store.durability()))},
                              {"healthy", healthy.ok()},
                              {"fault", healthy ? json::value() : json::value(json_text(healthy.fault().message))},
                              {"records", stats.records_estimate},
                              {"bytes", stats.bytes_on_disk},
                              {"bytes_max", shared_.room.capacity()},
                              {"room", shared_.room.for_claim()},
                              {"shortage", shortage ? json::value(json_text(*shortage)) : json::value()}};
  out["disk"] = disk.size_bytes == 0 ? json::value()
                                     : json::value(json::object{{"free_bytes", disk.free_bytes},
                                                                {"size_bytes", disk.size_bytes},
                                                                {"reserve_bytes", disk.reserve_bytes}});
  out["memory"] = json::object{{"rss_bytes", process_usage().resident_bytes},
                               {"limit_bytes", memory_limit_},
                               {"buffered_bytes", shared_.shares.in_use(Resource::buffered_bytes)},
                               {"buffered_bytes_max", limits.max_buffered_bytes}};
  out["connections"] =
      json::object{{"open", gateway_ == nullptr ? 0 : gateway_->connections()}, {"max", limits.max_connections}};
  out["in_flight"] =
      json::object{{"now", shared_.executing.load()},
                   {"max", limits.max_in_flight != 0 ? limits.max_in_flight : limits.max_upstream_connections}};
  out["waiters"] = shared_.waiters.waiting();
  out["tunnels"] = shared_.tunnels.load();
  out["detached"] = shared_.detached.load();
  json::array upstreams;
  for (const auto& upstream : shared_.upstreams.all()) {
    upstreams.push_back(json::object{{"name", json_text(upstream->name)},
                                     {"connections", upstream->open.load()},
                                     {"breaker_open", upstream->breaker.is_open()}});
  }
  out["upstreams"] = std::move(upstreams);
  json::array routes;
  for (const Route& route : config.routes) routes.push_back(json_text(route.name));
  out["routes"] = std::move(routes);
  out["keys"] = json::object{{"abandoned", counts_.keys.abandoned},
                             {"indeterminate", counts_.keys.indeterminate},
                             {"counted_up_to", kWaitingCountMax}};
  json::array leases;
  for (const LiveCalls::LateLease& late : shared_.live_calls.late_leases(kShownLeases)) {
    leases.push_back(
        json::object{{"id", to_hex(late.id)}, {"lease_ms", late.lease.count()}, {"lease_left_ms", late.left.count()}});
  }
  out["leases"] = std::move(leases);
  out["storms"] = storms(kShownStorms);
  out["jobs"] = jobs();
  out["gateways"] = gateways();
  out["gateways_shared"] = kind != "memory" && kind != "journal";
  return out;
}

PageAnswer Overview::show(std::string_view query, json::value bulk) const {
  std::optional<std::uint64_t> from;
  if (const std::string_view given = query_value(query, "since"); !given.empty()) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), number);
    if (error != std::errc{} || end != given.data() + given.size())
      return refused(400, "since: expected `history.next` of an earlier answer, as it was");
    from = number;
  }
  const History::Since found = history_.since(from);
  json::array columns;
  each_enumerator<HistoryColumn>([&](HistoryColumn column) { columns.push_back(json_text(enum_name(column))); });
  json::array rows;
  rows.reserve(found.rows.size());
  for (const History::Row& row : found.rows) {
    json::array values;
    values.reserve(row.size());
    for (const double value : row) values.push_back(number(value));
    rows.push_back(std::move(values));
  }
  json::object out = live();
  out["bulk"] = std::move(bulk);
  out["history"] = json::object{{"step_seconds", History::kStep.count()},
                                {"next", history_.next()},
                                {"gap", found.gap},
                                {"columns", std::move(columns)},
                                {"rows", std::move(rows)}};
  return json_answer(out);
}

} // namespace oncekey
