// metrics: what the gateway counts, for /metrics.
//
// Names and labels are an interface: dashboards hang on them. tests/integration pins them.
#pragma once

#include "gateway/open_metrics.h"
#include "http/exchange.h"

#include <oncekey/time.h>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <deque>

namespace oncekey {

using CounterFamily = prometheus::Family<prometheus::Counter>;
using GaugeFamily = prometheus::Family<prometheus::Gauge>;
using HistogramFamily = prometheus::Family<prometheus::Histogram>;
// New ones, by name and help text.
CounterFamily& counters(prometheus::Registry& registry, const char* name, const char* help);
GaugeFamily& gauges(prometheus::Registry& registry, const char* name, const char* help);
HistogramFamily& histograms(prometheus::Registry& registry, const char* name, const char* help);

// From a cache hit to the longest call that clients wait for.
inline const prometheus::Histogram::BucketBoundaries kSeconds = {
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};

// What all of one upstream's calls are counted in.
struct UpstreamMetrics {
  prometheus::Counter& breaker_refusals;
  prometheus::Gauge& breaker_open;
  prometheus::Gauge& connections;
};

// A route, and the upstream it goes to; empty if there is none.
struct RouteLabels {
  std::string route;
  std::string upstream;
  bool operator==(const RouteLabels&) const = default;
};

// What is counted by route.
struct RouteFamilies {
  prometheus::Registry& registry;
  CounterFamily& requests =
      counters(registry, "oncekey_requests_total", "Requests by route and by what was decided about them");
  CounterFamily& retries =
      counters(registry, "oncekey_retries_total", "Requests that found their key used by an earlier request alike");
  GaugeFamily& stormy_keys =
      gauges(registry, "oncekey_storm_keys", "Keys retried ten times or more within ten seconds, lately");
  GaugeFamily& hottest =
      gauges(registry, "oncekey_hottest_key_retries", "Most retries of a single key within ten seconds, lately");
  HistogramFamily& upstream_seconds =
      histograms(registry, "oncekey_upstream_seconds",
                 "Time of keyed calls to the upstream, from the first byte sent to the last received");
};

// How long the calls of a route take, as a moving average.
// Safe to use from several threads. Two notes at the same moment may leave one of them out, which does not matter.
class UsualDuration {
 public:
  void note(std::chrono::nanoseconds duration) {
    const std::int64_t micros = std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
    const std::int64_t before = micros_.load(std::memory_order_relaxed);
    micros_.store(before < 0 ? micros : before + (micros - before) / kCallsCounted, std::memory_order_relaxed);
  }
  // Nothing before the first call has ended.
  std::optional<Millis> estimate() const {
    const std::int64_t micros = micros_.load(std::memory_order_relaxed);
    if (micros < 0) return std::nullopt;
    return std::chrono::ceil<Millis>(std::chrono::microseconds(micros));
  }

 private:
  // The newest call counts for an eighth: a route that has become slow is known as slow after some ten calls.
  static constexpr std::int64_t kCallsCounted = 8;
  std::atomic<std::int64_t> micros_{-1};
};

// The counters of one route, looked up once at start.
class RouteMetrics {
 public:
  RouteMetrics(const RouteFamilies& families, RouteLabels of);
  // One more request that ended in this decision: a verdict, a refusal code, or one of the names in metrics.cc.
  void count(std::string_view decision) const;
  // The same, and the access log will say so.
  void count(std::string_view decision, const Exchange& exchange) const;
  const std::string& route() const { return labels.route; }
  // Calls visit(decision, requests so far) for every decision.
  template <class Visit>
  void each_decision(Visit visit) const {
    for (const auto& [decision, counter] : by_decision_) visit(decision, counter->Value());
  }

  const RouteLabels labels;
  prometheus::Counter& retries;
  prometheus::Gauge& stormy_keys;
  prometheus::Gauge& hottest_key_retries;
  prometheus::Histogram& upstream_seconds;
  mutable UsualDuration usual_duration; // of keyed calls to the upstream
  mutable BucketExemplars upstream_exemplars{kSeconds};

 private:
  std::unordered_map<std::string_view, prometheus::Counter*> by_decision_;
};

class Metrics {
 public:
  // The number of the route with this name, from 0 on; a new one for a new name. Numbers and what is counted under them
  // stay, also when a reload takes the route away. This and the next three from any thread; not for each request.
  std::size_t number_of(const RouteLabels& route);
  // Of a number that number_of() has given.
  const RouteMetrics& route(std::size_t number) const;
  std::size_t routes() const;
  // For requests that match no route.
  const RouteMetrics& no_route() const { return no_route_; }
  // Of the upstream with this name, which is its label.
  UpstreamMetrics upstream(const std::string& name);

  // Called once, when the process begins.
  void begin(const std::string& version) {
    build_.Add({{"version", version}}).Set(1);
    process_start_time.SetToCurrentTime();
  }

  prometheus::Registry& registry() { return registry_; }
  // The text format of Prometheus, ready to be served, and that of OpenMetrics, with exemplars.
  std::string expose() const;
  std::string expose_open() const;

 private:
  using Counter = prometheus::Counter;
  using Gauge = prometheus::Gauge;
  using Histogram = prometheus::Histogram;
  Counter& counter(const char* name, const char* help) { return counters(registry_, name, help).Add({}); }
  Gauge& gauge(const char* name, const char* help) { return gauges(registry_, name, help).Add({}); }

  prometheus::Registry registry_;
  RouteFamilies by_route_{registry_};
  HistogramFamily& store_seconds_ =
      histograms(registry_, "oncekey_store_seconds", "Time a store call took until it was durable");
  CounterFamily& refused_connections_ = counters(registry_, "oncekey_connections_refused_total",
                                                 "Connections closed at once because a limit was reached");
  CounterFamily& wrong_protocol_ =
      counters(registry_, "oncekey_wrong_protocol_total",
               "Connections that began with TLS on a plain port, or with plain HTTP on a TLS port");
  CounterFamily& breaker_refusals_ =
      counters(registry_, "oncekey_upstream_breaker_refusals_total",
               "Requests refused because the upstream could not be reached several times in a row");
  GaugeFamily& breaker_open_ =
      gauges(registry_, "oncekey_upstream_breaker_open", "1 while the circuit breaker is open, else 0");
  GaugeFamily& upstream_connections_ =
      gauges(registry_, "oncekey_upstream_connections", "Connections to the upstream in use");
  CounterFamily& reloads_ =
      counters(registry_, "oncekey_config_reloads_total", "Reloads of the configuration, by whether it was applied");
  CounterFamily& spans_ =
      counters(registry_, "oncekey_spans_total", "Spans of traced requests, by what became of them");
  GaugeFamily& build_ = gauges(registry_, "oncekey_build_info", "Always 1; the version is a label");
  GaugeFamily& keys_ =
      gauges(registry_, "oncekey_keys",
             "Keys that wait for a person: abandoned (the lease is over) and indeterminate (the outcome is "
             "unknown). Counted every few seconds, up to 100000");
  RouteMetrics no_route_{by_route_, {"(none)", {}}};
  mutable std::mutex mutex_; // over the next
  std::deque<RouteMetrics> routes_;

 public:
  Counter& reloads_loaded = reloads_.Add({{"result", "loaded"}});
  Counter& reloads_refused = reloads_.Add({{"result", "refused"}});
  Gauge& config_loaded = gauge("oncekey_config_loaded_timestamp_seconds",
                               "When the configuration in use was loaded, in seconds since 1970");
  Histogram& claim_seconds = store_seconds_.Add({{"call", "claim"}}, kSeconds);
  Histogram& complete_seconds = store_seconds_.Add({{"call", "complete"}}, kSeconds);
  Counter& stored_bytes = counter("oncekey_stored_bytes_total", "Response bytes put into records");
  Counter& store_faults = counter("oncekey_store_faults_total", "Store calls that failed");
  Counter& ignored_keys =
      counter("oncekey_ignored_keys_total",
              "Requests that change something and had a key, on a path or method that no route protects");
  Counter& lost_leases = counter("oncekey_lost_leases_total", "Owners whose lease was taken over while they worked");
  Counter& takeovers = counter("oncekey_takeovers_total", "Abandoned claims taken over");
  Counter& limiter_faults =
      counter("oncekey_limiter_faults_total", "Requests let through because the rate limiter did not answer in time");
  Counter& process_cpu_seconds =
      counter("process_cpu_seconds_total", "Processor time of this process, in user and kernel mode, in seconds");
  Gauge& process_resident_bytes = gauge("process_resident_memory_bytes", "Memory of this process");
  Gauge& process_open_fds = gauge("process_open_fds", "Open file descriptors of this process");
  Gauge& process_max_fds = gauge("process_max_fds", "File descriptors that this process may open");
  Gauge& process_start_time = gauge("process_start_time_seconds", "When this process began, in seconds since 1970");
  Gauge& detached = gauge("oncekey_detached", "Operations whose client was told to fetch the answer later");
  Gauge& tunnels = gauge("oncekey_tunnels", "WebSockets that are open");
  Gauge& in_flight = gauge("oncekey_in_flight", "Keyed requests being executed now");
  Gauge& waiters = gauge("oncekey_waiters", "Requests waiting for another one's answer");
  Gauge& connections = gauge("oncekey_connections", "Open client connections");
  // limits.max_connections was reached, or limits.max_connections_per_address.
  Counter& refused_connections_all = refused_connections_.Add({{"limit", "all"}});
  Counter& refused_connections_address = refused_connections_.Add({{"limit", "address"}});
  Counter& tls_on_a_plain_port = wrong_protocol_.Add({{"sent", "tls"}});
  Counter& plain_http_on_a_tls_port = wrong_protocol_.Add({{"sent", "http"}});
  Gauge& buffered_bytes = gauge("oncekey_buffered_bytes", "Bytes of bodies held in memory");
  Gauge& store_records = gauge("oncekey_store_records", "Records in the store, estimated");
  Gauge& store_bytes = gauge("oncekey_store_bytes", "Size of the store on disk");
  Gauge& store_bytes_max = gauge("oncekey_store_bytes_max", "Bytes the store may take; 0 if that is not known");
  Gauge& store_room = gauge("oncekey_store_room", "1 while there is room for new records, else 0");
  Gauge& store_buckets = gauge("oncekey_store_buckets", "Time buckets the store holds");
  Counter& store_syncs = counter("oncekey_store_syncs_total", "Group commits");
  Counter& store_writes = counter("oncekey_store_writes_total", "Records written in group commits");
  Counter& audit_written = counter("oncekey_audit_written_total", "Lines written to the audit log");
  Counter& audit_lost =
      counter("oncekey_audit_lost_total", "Lines that could not be written to the audit log: the disk is full or slow");
  Gauge& audit_behind =
      gauge("oncekey_audit_behind", "Lines of the audit log that its head in the store does not cover");
  Counter& spans_sent = spans_.Add({{"result", "sent"}});
  Counter& spans_dropped = spans_.Add({{"result", "dropped"}});
  Gauge& keys_abandoned = keys_.Add({{"state", "abandoned"}});
  Gauge& keys_indeterminate = keys_.Add({{"state", "indeterminate"}});
  Gauge& store_healthy = gauge("oncekey_store_healthy", "1 while the store takes claims, else 0");
  Gauge& store_durability = gauge("oncekey_store_durability",
                                  "What the store's writes survive: 2 a power cut, 1 the end of a process, 0 neither");
};

// Seconds since `start`, for a histogram.
inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

} // namespace oncekey
