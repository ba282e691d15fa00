// upstreams: the APIs behind the gateway. A route may have one of its own; each has its own connections, breaker and
// metrics, so that one that is gone does not hold up the routes of the others.
#pragma once

#include "config/config.h"
#include "gateway/metrics.h"
#include "http/upstream.h"

namespace oncekey {

// Stops asking an upstream that cannot be reached.
//
// A host that does not answer costs every request its time to connect, and every key a claim and a release. After some
// failures to connect in a row the breaker opens: new work is refused before it is claimed. After a pause one request
// is let through at a time; when it reaches the upstream the breaker closes.
//
// Only connecting counts. An upstream that answers with errors is there, and what its errors mean is the policy's
// business.
//
// Safe to use from several threads. While all is well a call costs two relaxed loads.
class UpstreamBreaker {
 public:
  using Instant = std::chrono::steady_clock::time_point;

  // The permission to call the upstream. Its holder reports how the call went; a Pass that is dropped reports nothing.
  class Pass {
   public:
    Pass(Pass&& other) noexcept : breaker_(std::exchange(other.breaker_, nullptr)), trial_(other.trial_) {}
    Pass& operator=(Pass&&) = delete;
    ~Pass();
    // A connection was there or could be made. True if that has closed the breaker.
    bool reached();
    // None could be made. True if that has opened the breaker.
    bool not_reached(Instant now);

   private:
    friend class UpstreamBreaker;
    Pass(UpstreamBreaker& breaker, bool trial) : breaker_(&breaker), trial_(trial) {}
    UpstreamBreaker* breaker_;
    bool trial_; // the one that is let through while it is open
  };

  explicit UpstreamBreaker(const BreakerOptions& options) : options_(options) {}

  // Nothing while the breaker is open.
  std::optional<Pass> ask(Instant now);
  // When to ask again, for a caller that got nothing.
  std::chrono::seconds retry_after(Instant now) const;
  bool is_open() const { return open_.load(std::memory_order_relaxed); }

 private:
  bool reached();
  bool not_reached(Instant now, bool trial);
  void trial_is_over();

  const BreakerOptions options_;
  std::atomic<bool> open_{false};
  std::atomic<bool> failing_{false}; // open, or some failures on the way to it
  mutable std::mutex mutex_;         // guards the rest, and every change
  std::uint32_t failures_ = 0;       // in a row
  Instant first_failure_{};
  Instant open_until_{}; // then one may try
  bool on_trial_ = false;
};

// One upstream as all threads see it.
struct Upstream {
  Upstream(const Config& config, const Url& at, std::size_t position, UpstreamMetrics counted)
      : url(at), name(at.origin()), index(position), breaker(config.breaker), metrics(counted) {}

  const Url url;
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
  Upstream* find(const Url& url) const;
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
Result<UpstreamPools> make_pools(const Config& config, Upstreams& upstreams, Loop& loop,
                                 std::atomic<std::uint32_t>& in_use);

} // namespace oncekey
