// metrics: what the gateway counts, for /metrics.
//
// Names and labels are an interface: dashboards hang on them. tests/integration pins them.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace oncekey {

// The counters of one route, looked up once at start.
class RouteMetrics {
 public:
  RouteMetrics(prometheus::Family<prometheus::Counter>& requests, prometheus::Family<prometheus::Counter>& retries,
               prometheus::Family<prometheus::Gauge>& stormy_keys, prometheus::Family<prometheus::Gauge>& hottest,
               const std::string& route);
  // One more request that ended in this decision: a verdict, a refusal code, or one of the names in metrics.cc.
  void count(std::string_view decision) const;

  prometheus::Counter& retries;
  prometheus::Gauge& stormy_keys;
  prometheus::Gauge& hottest_key_retries;

 private:
  std::unordered_map<std::string_view, prometheus::Counter*> by_decision_;
};

class Metrics {
 public:
  explicit Metrics(const std::vector<std::string>& routes);

  const RouteMetrics& route(std::size_t index) const { return routes_[index]; }
  // For requests that match no route.
  const RouteMetrics& no_route() const { return routes_.back(); }

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
  prometheus::Family<prometheus::Gauge>& keys_;
  std::vector<RouteMetrics> routes_;

 public:
  prometheus::Histogram& upstream_seconds;
  prometheus::Histogram& claim_seconds;
  prometheus::Histogram& complete_seconds;
  prometheus::Counter& stored_bytes;
  prometheus::Counter& store_faults;
  prometheus::Counter& lost_leases;
  prometheus::Counter& takeovers;
  prometheus::Counter& limiter_faults;
  prometheus::Counter& breaker_refusals;
  prometheus::Gauge& breaker_open;
  prometheus::Gauge& detached;
  prometheus::Gauge& in_flight;
  prometheus::Gauge& waiters;
  prometheus::Gauge& connections;
  prometheus::Counter& refused_connections_all;     // limits.max_connections was reached
  prometheus::Counter& refused_connections_address; // limits.max_connections_per_address was reached
  prometheus::Gauge& upstream_connections;
  prometheus::Gauge& buffered_bytes;
  prometheus::Gauge& store_records;
  prometheus::Gauge& store_bytes;
  prometheus::Gauge& store_bytes_max;
  prometheus::Gauge& store_room;
  prometheus::Gauge& store_buckets;
  prometheus::Gauge& store_syncs;
  prometheus::Gauge& store_writes;
  prometheus::Gauge& store_jobs;
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
