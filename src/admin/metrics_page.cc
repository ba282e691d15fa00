#include "admin/metrics_page.h"

#include "base/process_usage.h"

#include <algorithm>

namespace oncekey {
namespace {

void show_storms(GatewayShared& shared) {
  struct Storm {
    std::uint64_t keys = 0;
    std::uint64_t hottest = 0;
  };
  std::vector<Storm> by_route(shared.metrics.routes());
  for (const Storms::HotKey& hot : shared.storms.hottest(std::chrono::steady_clock::now())) {
    Storm& storm = by_route[hot.route];
    if (hot.retries >= Storms::kStormRetries) ++storm.keys;
    storm.hottest = std::max(storm.hottest, hot.retries);
  }
  for (std::size_t i = 0; i < by_route.size(); ++i) {
    const RouteMetrics& route = shared.metrics.route(i);
    route.stormy_keys.Set(static_cast<double>(by_route[i].keys));
    route.hottest_key_retries.Set(static_cast<double>(by_route[i].hottest));
  }
}

void show_process(Metrics& metrics) {
  const ProcessUsage usage = process_usage();
  metrics.process_cpu_seconds.Increment(std::max(0.0, usage.cpu_seconds - metrics.process_cpu_seconds.Value()));
  metrics.process_resident_bytes.Set(static_cast<double>(usage.resident_bytes));
  metrics.process_open_fds.Set(static_cast<double>(usage.open_descriptors));
  metrics.process_max_fds.Set(static_cast<double>(usage.descriptors_max));
}

} // namespace

PageAnswer metrics_page(GatewayShared& shared, const Server* gateway, const Headers& asked) {
  Metrics& metrics = shared.metrics;
  const StoreStats stats = shared.store.stats();
  metrics.waiters.Set(static_cast<double>(shared.waiters.waiting()));
  metrics.connections.Set(gateway == nullptr ? 0 : gateway->connections());
  const auto catch_up = [](prometheus::Counter& counter, std::uint64_t value) {
    counter.Increment(std::max(0.0, static_cast<double>(value) - counter.Value()));
  };
  if (gateway != nullptr) {
    catch_up(metrics.refused_connections_all, gateway->refused_connections().all_used.load());
    catch_up(metrics.refused_connections_address, gateway->refused_connections().address_over.load());
    catch_up(metrics.tls_on_a_plain_port, gateway->refused_connections().spoke_tls.load());
    catch_up(metrics.plain_http_on_a_tls_port, gateway->refused_connections().spoke_plain_http.load());
  }
  for (const auto& upstream : shared.upstreams.all()) {
    upstream->metrics.connections.Set(upstream->open.load());
    upstream->metrics.breaker_open.Set(upstream->breaker.is_open() ? 1 : 0);
  }
  metrics.buffered_bytes.Set(static_cast<double>(shared.shares.in_use(Resource::buffered_bytes)));
  metrics.in_flight.Set(shared.executing.load());
  metrics.detached.Set(shared.detached.load());
  metrics.tunnels.Set(shared.tunnels.load());
  show_storms(shared);
  show_process(metrics);
  metrics.store_records.Set(static_cast<double>(stats.records_estimate));
  metrics.store_bytes.Set(static_cast<double>(stats.bytes_on_disk));
  metrics.store_bytes_max.Set(static_cast<double>(shared.room.capacity()));
  metrics.store_room.Set(shared.room.for_claim() ? 1 : 0);
  metrics.store_buckets.Set(static_cast<double>(stats.buckets));
  catch_up(metrics.store_syncs, stats.syncs);
  catch_up(metrics.store_writes, stats.writes);
  if (shared.audit != nullptr) {
    const AuditLog::Counts audit = shared.audit->counts();
    catch_up(metrics.audit_written, audit.written);
    catch_up(metrics.audit_lost, audit.lost);
    metrics.audit_behind.Set(static_cast<double>(audit.behind));
  }
  if (shared.spans != nullptr) {
    const SpanExporter::Counts spans = shared.spans->counts();
    catch_up(metrics.spans_sent, spans.sent);
    catch_up(metrics.spans_dropped, spans.dropped);
  }
  metrics.store_durability.Set(static_cast<double>(shared.store.durability()));
  metrics.store_healthy.Set(shared.store.healthy().ok() ? 1 : 0);
  if (accepts_open_metrics(asked.get("Accept").value_or(std::string_view())))
    return {200, metrics.expose_open(), std::string(kOpenMetricsType)};
  return {200, metrics.expose(), "text/plain; version=0.0.4; charset=utf-8"};
}

} // namespace oncekey
