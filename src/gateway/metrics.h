// metrics: what the gateway counts, for /metrics.
//
// Names and labels are an interface: dashboards hang on them. tests/integration pins them.
#pragma once

#include "gateway/usual_duration.h"
#include "http/exchange.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace oncekey {

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

// The counters of one route, looked up once at start.
class RouteMetrics {
 public:
  RouteMetrics(prometheus::Family<prometheus::Counter>& requests, prometheus::Family<prometheus::Counter>& retries,
               prometheus::Family<prometheus::Gauge>& stormy_keys, prometheus::Family<prometheus::Gauge>& hottest,
               prometheus::Family<prometheus::Histogram>& upstream_seconds, const RouteLabels& labels);
  // One more request that ended in this decision: a verdict, a refusal code, or one of the names in metrics.cc.
  void count(std::string_view decision) const;
  // The same, and the access log will say so.
  void count(std::string_view decision, const Exchange& exchange) const;
  const std::string& route() const { return route_; }

  prometheus::Counter& retries;
  prometheus::Gauge& stormy_keys;
  prometheus::Gauge& hottest_key_retries;
  prometheus::Histogram& upstream_seconds;
  UsualDuration& usual_duration() const { return *usual_duration_; } // of keyed calls to the upstream

 private:
  std::string route_;
  std::unordered_map<std::string_view, prometheus::Counter*> by_decision_;
  std::unique_ptr<UsualDuration> usual_duration_ = std::make_unique<UsualDuration>();
};

class Metrics {
 public:
  Metrics();

  // The number of the route with this name, from 0 on; a new one for a new name. Numbers and what is counted under them
  // stay, also when a reload takes the route away. This and the next three from any thread; not for each request.
  std::size_t number_of(const RouteLabels& route);
  // Of a number that number_of() has given.
  const RouteMetrics& route(std::size_t number) const;
  std::string name_of(std::size_t number) const;
  std::size_t routes() const;
  // For requests that match no route.
  const RouteMetrics& no_route() const { return no_route_; }
  // Of the upstream with this name, which is its label.
  UpstreamMetrics upstream(const std::string& name);

  prometheus::Registry& registry() { return registry_; }
  // The exposition format, ready to be served.
  std::string expose() const;

 private:
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Family<prometheus::Counter>& retries_;
  prometheus::Family<prometheus::Gauge>& stormy_keys_;
  prometheus::Family<prometheus::Gauge>& hottest_;
  prometheus::Family<prometheus::Histogram>& store_seconds_;
  prometheus::Family<prometheus::Counter>& refused_connections_;
  prometheus::Family<prometheus::Counter>& wrong_protocol_;
  prometheus::Family<prometheus::Histogram>& upstream_seconds_;
  prometheus::Family<prometheus::Counter>& breaker_refusals_;
  prometheus::Family<prometheus::Gauge>& breaker_open_;
  prometheus::Family<prometheus::Gauge>& upstream_connections_;
  prometheus::Family<prometheus::Counter>& reloads_;
  prometheus::Family<prometheus::Gauge>& keys_;
  RouteMetrics no_route_;
  mutable std::mutex mutex_; // over the next
  std::deque<std::pair<RouteLabels, RouteMetrics>> routes_;

 public:
  prometheus::Counter& reloads_loaded;
  prometheus::Counter& reloads_refused;
  prometheus::Gauge& config_loaded; // when, in seconds since 1970
  prometheus::Histogram& claim_seconds;
  prometheus::Histogram& complete_seconds;
  prometheus::Counter& stored_bytes;
  prometheus::Counter& store_faults;
  prometheus::Counter& ignored_keys;
  prometheus::Counter& lost_leases;
  prometheus::Counter& takeovers;
  prometheus::Counter& limiter_faults;
  prometheus::Gauge& detached;
  prometheus::Gauge& tunnels;
  prometheus::Gauge& in_flight;
  prometheus::Gauge& waiters;
  prometheus::Gauge& connections;
  prometheus::Counter& refused_connections_all;     // limits.max_connections was reached
  prometheus::Counter& refused_connections_address; // limits.max_connections_per_address was reached
  prometheus::Counter& tls_on_a_plain_port;
  prometheus::Counter& plain_http_on_a_tls_port;
  prometheus::Gauge& buffered_bytes;
  prometheus::Gauge& store_records;
  prometheus::Gauge& store_bytes;
  prometheus::Gauge& store_bytes_max;
  prometheus::Gauge& store_room;
  prometheus::Gauge& store_buckets;
  prometheus::Gauge& store_syncs;
  prometheus::Gauge& store_writes;
  prometheus::Gauge& keys_abandoned;
  prometheus::Gauge& keys_indeterminate;
  prometheus::Gauge& store_healthy;
  prometheus::Gauge& store_durability;
};

// Seconds since `start`, for a histogram.
inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

} // namespace oncekey
