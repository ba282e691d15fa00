// upstreams: the APIs behind the gateway. A route may have one of its own; each has its own connections, breaker and
// metrics, so that one that is gone does not hold up the routes of the others.
#pragma once

#include "config/config.h"
#include "gateway/metrics.h"
#include "gateway/upstream_breaker.h"
#include "http/upstream.h"

#include <oncekey/result.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace oncekey {

// One upstream as all threads see it.
struct Upstream {
  Upstream(const Config& config, const UpstreamUrl& at, std::size_t position, UpstreamMetrics counted)
      : url(at), name(to_string(at)), index(position), breaker(config.breaker), metrics(counted) {}

  const UpstreamUrl url;
  const std::string name; // as in the configuration; the label of its metrics
  const std::size_t index;
  UpstreamBreaker breaker;
  std::atomic<std::uint32_t> open{0}; // calls under way
  const UpstreamMetrics metrics;
};

class Upstreams {
 public:
  Upstreams(const Config& config, Metrics& metrics);

  // Null if no configuration at the start named it.
  Upstream* find(const UpstreamUrl& url) const;
  // For requests whose path no route has; null if the configuration names none.
  Upstream* of_no_route() { return of_no_route_; }
  const std::vector<std::unique_ptr<Upstream>>& all() const { return all_; }

 private:
  std::vector<std::unique_ptr<Upstream>> all_;
  Upstream* of_no_route_ = nullptr;
};

// The connections of one thread, by Upstream::index.
using UpstreamPools = std::vector<std::unique_ptr<UpstreamPool>>;

// `in_use` counts the calls to all of them, for limits.max_upstream_connections.
Result<UpstreamPools> make_pools(const Config& config, Upstreams& upstreams, Loop& timers,
                                 std::atomic<std::uint32_t>& in_use);

} // namespace oncekey
