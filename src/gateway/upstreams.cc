#include "gateway/upstreams.h"

#include <algorithm>
#include <utility>

namespace oncekey {
namespace {

UpstreamOptions options_of(const Config& config, const UpstreamUrl& url, std::size_t upstreams) {
  UpstreamOptions options;
  options.host = url.host;
  options.port = url.port;
  options.tls = url.scheme == UpstreamUrl::Scheme::https;
  options.ca_file = config.upstream_ca;
  options.connect_timeout = config.timeouts.connect;
  options.idle_timeout = config.timeouts.upstream_idle;
  options.max_header_bytes = config.limits.max_header_bytes;
  options.max_connections = config.limits.max_upstream_connections;
  options.max_idle = std::max<std::size_t>(1, kIdleUpstreamMax / upstreams);
  return options;
}

} // namespace

Upstreams::Upstreams(const Config& config, Metrics& metrics) {
  for (const UpstreamUrl& url : upstreams_of(config)) {
    all_.push_back(std::make_unique<Upstream>(config, url, all_.size(), metrics.upstream(to_string(url))));
  }
  of_no_route_ = find(config.upstream);
}

Upstream* Upstreams::find(const UpstreamUrl& url) const {
  const std::string name = to_string(url);
  for (const auto& upstream : all_) {
    if (upstream->name == name) return upstream.get();
  }
  return nullptr;
}

Result<UpstreamPools> make_pools(const Config& config, Upstreams& upstreams, Loop& timers,
                                 std::atomic<std::uint32_t>& in_use) {
  UpstreamPools pools;
  const std::size_t count = upstreams.all().size();
  for (const auto& upstream : upstreams.all()) {
    auto pool = UpstreamPool::make(options_of(config, upstream->url, count), timers, in_use, &upstream->open);
    if (!pool) return std::move(pool).fault();
    pools.push_back(std::move(pool).value());
  }
  return pools;
}

} // namespace oncekey
