#include "gateway/shared.h"

#include "core/replies.h"

#include <fmt/format.h>

#include <algorithm>

namespace oncekey {
namespace {

std::vector<std::string> names_of(const std::vector<Route>& routes) {
  std::vector<std::string> names;
  for (const Route& route : routes) names.push_back(route.name);
  return names;
}

std::string publish(const Config& config) {
  std::vector<PublishedRoute> published;
  for (const Route& route : config.routes) published.push_back({route.path, &route.policy});
  switch (config.publish_policies) {
    case PublishedPolicies::expiry:
      return published_expiry(published);
    case PublishedPolicies::routes:
      return published_routes(published);
    case PublishedPolicies::none:
      break;
  }
  return {};
}

} // namespace

GatewayShared::GatewayShared(const Config& configuration, Store& record_store, Log& logger)
    : config(configuration),
      store(record_store),
      log(logger),
      hash(record_store.secret()),
      metrics(names_of(configuration.routes)),
      self{fmt::format("oncekey-{:08x}", static_cast<std::uint32_t>(random_u64())), configuration.trusted_proxies},
      published(publish(configuration)),
      rates(record_store.rates() != nullptr ? *record_store.rates() : local_rates),
      breaker(configuration.breaker),
      has_status_urls(std::any_of(configuration.routes.begin(), configuration.routes.end(),
                                  [](const Route& route) { return route.policy.respond_async; })) {
  store.announce_to([told = waiters_owner](const std::optional<RecordId>& settled) {
    if (settled) {
      told->notify(*settled);
    } else {
      told->notify_all();
    }
  });
}

bool BufferedBytes::try_hold(std::uint64_t bytes) {
  const std::uint64_t before = shared_.buffered_bytes.fetch_add(bytes, std::memory_order_relaxed);
  if (before + bytes > shared_.config.limits.max_buffered_bytes) {
    shared_.buffered_bytes.fetch_sub(bytes, std::memory_order_relaxed);
    return false;
  }
  held_ += bytes;
  return true;
}

bool BufferedBytes::try_hold_answer(std::uint64_t bytes) {
  if (try_hold(bytes)) return true;
  if (shared_.buffered_bytes.load(std::memory_order_relaxed) > held_) return false;
  hold(bytes);
  return true;
}

void BufferedBytes::hold(std::uint64_t bytes) {
  shared_.buffered_bytes.fetch_add(bytes, std::memory_order_relaxed);
  held_ += bytes;
}

} // namespace oncekey
