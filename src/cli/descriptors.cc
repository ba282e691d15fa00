#include "cli/descriptors.h"

#include "http/upstream.h"

#include <fmt/format.h>

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace oncekey {
namespace {

// The store's files: RocksDB keeps 256 open (kOpenFilesMax), and opens logs, manifests and files to compact beside
// them; a shared store has its connections.
constexpr std::uint64_t kStoreDescriptors = 320;
// Listeners, event loops, timers, the log, name lookups, and what libraries open for a moment.
constexpr std::uint64_t kFixedDescriptors = 64;
// Accepted connections that are refused stay open for a moment.
constexpr std::uint64_t kReserve = 64;
// A gateway with fewer connections than this refuses to start.
constexpr std::uint32_t kConnectionsMin = 16;

// What everything but clients and upstream calls may have open at one time.
std::uint64_t other_descriptors(const Config& config, std::size_t threads) {
  std::uint64_t deliveries = 0;
  for (const Webhook& webhook : config.webhooks) deliveries += webhook.endpoint.concurrency;
  for (const Endpoint& destination : config.destinations) deliveries += destination.concurrency;
  const std::uint64_t listeners = config.outbox ? 2 : 1;
  return kStoreDescriptors + kFixedDescriptors + kReserve + 2 * deliveries + listeners * kAdminConnectionsMax +
         threads * 8;
}

} // namespace

Status fit_descriptors(Config& config, std::size_t threads, Log& log) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return unavailable(fmt::format("the limit of file descriptors cannot be read: {}", std::strerror(errno)));
  }
  if (limit.rlim_cur < limit.rlim_max) {
    rlimit raised = limit;
    raised.rlim_cur = limit.rlim_max;
    if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  const std::uint64_t allowed = limit.rlim_cur;
  const std::uint64_t others = other_descriptors(config, threads);
  Limits& limits = config.limits;
  // Idle connections to the upstreams are kept beside those in use, up to a limit for each thread. In the worst case
  // each upstream had all calls for a while, and has kept as many idle connections.
  const std::uint64_t upstreams = std::max<std::uint64_t>(1, upstreams_of(config).size());
  const std::uint64_t idle_max = threads * kIdleUpstreamMax;
  const auto needed = [&] {
    const std::uint64_t idle = std::min<std::uint64_t>(limits.max_upstream_connections * upstreams, idle_max);
    return others + limits.max_connections + limits.max_upstream_connections + idle;
  };
  if (needed() <= allowed) return ok_status();

  const std::uint64_t wanted = needed();
  const std::uint64_t left = allowed > others ? allowed - others : 0;
  // Two thirds for clients; calls to the upstream and its idle connections have the rest.
  const auto connections = static_cast<std::uint32_t>(std::min<std::uint64_t>(limits.max_connections, left * 2 / 3));
  const std::uint64_t rest = left - connections;
  const std::uint64_t beside_idle = std::max(rest / (1 + upstreams), rest > idle_max ? rest - idle_max : 0);
  const auto upstream =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(limits.max_upstream_connections, beside_idle));
  if (connections < kConnectionsMin || upstream < kConnectionsMin) {
    return invalid(fmt::format(
        "the limit of file descriptors is {}, and {} are needed beside clients and upstream calls, which leaves too "
        "few: raise it, as with `ulimit -n 65536` or LimitNOFILE=65536 in a systemd unit",
        allowed, others));
  }
  log.warning("limits_lowered",
              {{"reason", fmt::format("the limit of file descriptors is {}, and {} would be needed", allowed, wanted)},
               {"max_connections", fmt::format("{} -> {}", limits.max_connections, connections)},
               {"max_upstream_connections", fmt::format("{} -> {}", limits.max_upstream_connections, upstream)},
               {"next", "raise the limit (ulimit -n, LimitNOFILE) or set smaller limits"}});
  limits.max_connections = connections;
  limits.max_upstream_connections = upstream;
  if (limits.max_in_flight > upstream) limits.max_in_flight = upstream;
  return ok_status();
}

} // namespace oncekey
