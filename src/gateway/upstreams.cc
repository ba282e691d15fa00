#include "gateway/upstreams.h"

namespace oncekey {
namespace {

UpstreamOptions options_of(const Config& config, const Url& url, std::size_t upstreams) {
  return {.server = url,
          .ca_file = config.upstream_ca,
          .connect_timeout = config.timeouts.connect,
          .idle_timeout = config.timeouts.upstream_idle,
          .max_header_bytes = config.limits.max_header_bytes,
          .max_connections = config.limits.max_upstream_connections,
          .max_idle = std::max<std::size_t>(1, kIdleUpstreamMax / upstreams)};
}

} // namespace

UpstreamBreaker::Pass::~Pass() {
  if (breaker_ != nullptr && trial_) breaker_->trial_is_over();
}

bool UpstreamBreaker::Pass::reached() {
  UpstreamBreaker* const breaker = std::exchange(breaker_, nullptr);
  return breaker != nullptr && breaker->reached();
}

bool UpstreamBreaker::Pass::not_reached(Instant now) {
  UpstreamBreaker* const breaker = std::exchange(breaker_, nullptr);
  return breaker != nullptr && breaker->not_reached(now, trial_);
}

std::optional<UpstreamBreaker::Pass> UpstreamBreaker::ask(Instant now) {
  if (!open_.load(std::memory_order_relaxed)) return Pass(*this, false);
  const std::lock_guard lock(mutex_);
  if (!open_) return Pass(*this, false);
  if (on_trial_ || now < open_until_) return std::nullopt;
  on_trial_ = true;
  return Pass(*this, true);
}

std::chrono::seconds UpstreamBreaker::retry_after(Instant now) const {
  const std::lock_guard lock(mutex_);
  const auto left = std::chrono::ceil<std::chrono::seconds>(std::max(open_until_ - now, Instant::duration{}));
  return std::max(left, std::chrono::seconds(1));
}

bool UpstreamBreaker::reached() {
  if (!failing_.load(std::memory_order_relaxed)) return false;
  const std::lock_guard lock(mutex_);
  failures_ = 0;
  on_trial_ = false;
  failing_ = false;
  return open_.exchange(false);
}

bool UpstreamBreaker::not_reached(Instant now, bool trial) {
  if (options_.failures == 0) return false;
  const std::lock_guard lock(mutex_);
  failing_ = true;
  if (open_) {
    // Calls from before it opened fail late and say nothing new.
    if (!trial) return false;
    on_trial_ = false;
    open_until_ = now + options_.pause;
    return false;
  }
  // A failure now and then is not a row of them.
  if (failures_ == 0 || now - first_failure_ > options_.window) {
    failures_ = 0;
    first_failure_ = now;
  }
  if (++failures_ < options_.failures) return false;
  open_until_ = now + options_.pause;
  on_trial_ = false;
  open_ = true;
  return true;
}

void UpstreamBreaker::trial_is_over() {
  const std::lock_guard lock(mutex_);
  on_trial_ = false;
}

Upstreams::Upstreams(const Config& config, Metrics& metrics) {
  for (const Url& url : upstreams_of(config)) {
    all_.push_back(std::make_unique<Upstream>(config, url, all_.size(), metrics.upstream(url.origin())));
  }
  of_no_route_ = find(config.upstream);
}

Upstream* Upstreams::find(const Url& url) const {
  const std::string name = url.origin();
  for (const auto& upstream : all_) {
    if (upstream->name == name) return upstream.get();
  }
  return nullptr;
}

Result<UpstreamPools> make_pools(const Config& config, Upstreams& upstreams, Loop& loop,
                                 std::atomic<std::uint32_t>& in_use) {
  UpstreamPools pools;
  const std::size_t count = upstreams.all().size();
  for (const auto& upstream : upstreams.all()) {
    auto pool = UpstreamPool::make(options_of(config, upstream->url, count), loop, in_use, &upstream->open);
    if (!pool) return std::move(pool).fault();
    pools.push_back(std::move(pool).value());
  }
  return pools;
}

} // namespace oncekey
