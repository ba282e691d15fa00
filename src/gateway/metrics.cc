#include "gateway/metrics.h"

#include "base/enum_name.h"
#include "core/decide.h"
#include "core/refusal.h"

#include <oncekey/check.h>

#include <prometheus/text_serializer.h>

#include <array>

namespace oncekey {
namespace {

// From a cache hit to the longest call that clients wait for.
const prometheus::Histogram::BucketBoundaries kSeconds = {
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};

// Every value the label `decision` can have. The verdicts and refusal codes spell themselves; the rest is what else can
// become of a request.
constexpr std::array kOtherDecisions = {"pass",
                                        "websocket",
                                        "no_upstream",
                                        "bypass",
                                        "malformed",
                                        "loop",
                                        "well_known",
                                        "client_gone",
                                        "accepted",
                                        "status_pending",
                                        "not_authorized",
                                        "observed_execute",
                                        "observed_replay",
                                        "observed_mismatch",
                                        "observed_in_progress",
                                        "observed_refusal"};

prometheus::Gauge& gauge(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
}
prometheus::Counter& counter(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add({});
}

} // namespace

RouteMetrics::RouteMetrics(prometheus::Family<prometheus::Counter>& requests,
                           prometheus::Family<prometheus::Counter>& retries_family,
                           prometheus::Family<prometheus::Gauge>& stormy_keys_family,
                           prometheus::Family<prometheus::Gauge>& hottest_family,
                           prometheus::Family<prometheus::Histogram>& upstream_seconds_family,
                           const RouteLabels& labels)
    : retries(retries_family.Add({{"route", labels.route}})),
      stormy_keys(stormy_keys_family.Add({{"route", labels.route}})),
      hottest_key_retries(hottest_family.Add({{"route", labels.route}})),
      upstream_seconds(upstream_seconds_family.Add({{"route", labels.route}, {"upstream", labels.upstream}}, kSeconds)),
      route_(labels.route) {
  const auto add = [&](std::string_view decision) {
    prometheus::Counter& made = requests.Add({{"route", labels.route}, {"decision", std::string(decision)}});
    by_decision_.emplace(decision, &made);
  };
  each_enumerator<Verdict>([&](Verdict verdict) { add(to_string(verdict)); });
  each_enumerator<RefusalCode>([&](RefusalCode code) {
    if (code <= kLastGatewayRefusal && !by_decision_.contains(to_string(code))) add(to_string(code));
  });
  for (const char* other : kOtherDecisions) add(other);
}

void RouteMetrics::count(std::string_view decision) const {
  const auto found = by_decision_.find(decision);
  ONCEKEY_CHECK(found != by_decision_.end(), "every decision is known to the metrics");
  found->second->Increment();
}

void RouteMetrics::count(std::string_view decision, const Exchange& exchange) const {
  count(decision);
  if (AccessNote* const note = exchange.note()) {
    note->route = route_;
    note->decision = decision;
  }
}

Metrics::Metrics()
    : requests_(prometheus::BuildCounter()
                    .Name("oncekey_requests_total")
                    .Help("Requests by route and by what was decided about them")
                    .Register(registry_)),
      retries_(prometheus::BuildCounter()
                   .Name("oncekey_retries_total")
                   .Help("Requests that found their key used by an earlier request alike")
                   .Register(registry_)),
      stormy_keys_(prometheus::BuildGauge()
                       .Name("oncekey_storm_keys")
                       .Help("Keys retried ten times or more within ten seconds, lately")
                       .Register(registry_)),
      hottest_(prometheus::BuildGauge()
                   .Name("oncekey_hottest_key_retries")
                   .Help("Most retries of a single key within ten seconds, lately")
                   .Register(registry_)),
      store_seconds_(prometheus::BuildHistogram()
                         .Name("oncekey_store_seconds")
                         .Help("Time a store call took until it was durable")
                         .Register(registry_)),
      refused_connections_(prometheus::BuildCounter()
                               .Name("oncekey_connections_refused_total")
                               .Help("Connections closed at once because a limit was reached")
                               .Register(registry_)),
      wrong_protocol_(prometheus::BuildCounter()
                          .Name("oncekey_wrong_protocol_total")
                          .Help("Connections that began with TLS on a plain port, or with plain HTTP on a TLS port")
                          .Register(registry_)),
      upstream_seconds_(prometheus::BuildHistogram()
                            .Name("oncekey_upstream_seconds")
                            .Help("Time of keyed calls to the upstream, from the first byte sent to the last received")
                            .Register(registry_)),
      breaker_refusals_(prometheus::BuildCounter()
                            .Name("oncekey_upstream_breaker_refusals_total")
                            .Help("Requests refused because the upstream could not be reached several times in a row")
                            .Register(registry_)),
      breaker_open_(prometheus::BuildGauge()
                        .Name("oncekey_upstream_breaker_open")
                        .Help("1 while the circuit breaker is open, else 0")
                        .Register(registry_)),
      upstream_connections_(prometheus::BuildGauge()
                                .Name("oncekey_upstream_connections")
                                .Help("Connections to the upstream in use")
                                .Register(registry_)),
      reloads_(prometheus::BuildCounter()
                   .Name("oncekey_config_reloads_total")
                   .Help("Reloads of the configuration, by whether it was applied")
                   .Register(registry_)),
      keys_(prometheus::BuildGauge()
                .Name("oncekey_keys")
                .Help("Keys that wait for a person: abandoned (the lease is over) and indeterminate (the outcome is "
                      "unknown). Counted every few seconds, up to 100000")
                .Register(registry_)),
      no_route_(requests_, retries_, stormy_keys_, hottest_, upstream_seconds_, {"(none)", {}}),
      reloads_loaded(reloads_.Add({{"result", "loaded"}})),
      reloads_refused(reloads_.Add({{"result", "refused"}})),
      config_loaded(gauge(registry_, "oncekey_config_loaded_timestamp_seconds",
                          "When the configuration in use was loaded, in seconds since 1970")),
      claim_seconds(store_seconds_.Add({{"call", "claim"}}, kSeconds)),
      complete_seconds(store_seconds_.Add({{"call", "complete"}}, kSeconds)),
      stored_bytes(counter(registry_, "oncekey_stored_bytes_total", "Response bytes put into records")),
      store_faults(counter(registry_, "oncekey_store_faults_total", "Store calls that failed")),
      ignored_keys(counter(registry_, "oncekey_ignored_keys_total",
                           "Requests that change something and had a key, on a path or method that no route protects")),
      lost_leases(
          counter(registry_, "oncekey_lost_leases_total", "Owners whose lease was taken over while they worked")),
      takeovers(counter(registry_, "oncekey_takeovers_total", "Abandoned claims taken over")),
      limiter_faults(counter(registry_, "oncekey_limiter_faults_total",
                             "Requests let through because the rate limiter did not answer in time")),
      detached(gauge(registry_, "oncekey_detached", "Operations whose client was told to fetch the answer later")),
      tunnels(gauge(registry_, "oncekey_tunnels", "WebSockets that are open")),
      in_flight(gauge(registry_, "oncekey_in_flight", "Keyed requests being executed now")),
      waiters(gauge(registry_, "oncekey_waiters", "Requests waiting for another one's answer")),
      connections(gauge(registry_, "oncekey_connections", "Open client connections")),
      refused_connections_all(refused_connections_.Add({{"limit", "all"}})),
      refused_connections_address(refused_connections_.Add({{"limit", "address"}})),
      tls_on_a_plain_port(wrong_protocol_.Add({{"sent", "tls"}})),
      plain_http_on_a_tls_port(wrong_protocol_.Add({{"sent", "http"}})),
      buffered_bytes(gauge(registry_, "oncekey_buffered_bytes", "Bytes of bodies held in memory")),
      store_records(gauge(registry_, "oncekey_store_records", "Records in the store, estimated")),
      store_bytes(gauge(registry_, "oncekey_store_bytes", "Size of the store on disk")),
      store_bytes_max(gauge(registry_, "oncekey_store_bytes_max", "Bytes the store may take; 0 if that is not known")),
      store_room(gauge(registry_, "oncekey_store_room", "1 while there is room for new records, else 0")),
      store_buckets(gauge(registry_, "oncekey_store_buckets", "Time buckets the store holds")),
      store_syncs(gauge(registry_, "oncekey_store_syncs", "Group commits since the start")),
      store_writes(gauge(registry_, "oncekey_store_writes", "Records written in them")),
      keys_abandoned(keys_.Add({{"state", "abandoned"}})),
      keys_indeterminate(keys_.Add({{"state", "indeterminate"}})),
      store_healthy(gauge(registry_, "oncekey_store_healthy", "1 while the store takes claims, else 0")),
      store_durability(gauge(registry_, "oncekey_store_durability",
                             "What the store's writes survive: 2 a power cut, 1 the end of a process, 0 neither")) {}

UpstreamMetrics Metrics::upstream(const std::string& name) {
  const prometheus::Labels label{{"upstream", name}};
  return {breaker_refusals_.Add(label), breaker_open_.Add(label), upstream_connections_.Add(label)};
}

std::size_t Metrics::number_of(const RouteLabels& route) {
  const std::lock_guard lock(mutex_);
  for (std::size_t number = 0; number < routes_.size(); ++number) {
    if (routes_[number].first == route) return number;
  }
  routes_.emplace_back(route, RouteMetrics(requests_, retries_, stormy_keys_, hottest_, upstream_seconds_, route));
  return routes_.size() - 1;
}

const RouteMetrics& Metrics::route(std::size_t number) const {
  const std::lock_guard lock(mutex_);
  return routes_[number].second;
}

std::string Metrics::name_of(std::size_t number) const {
  const std::lock_guard lock(mutex_);
  return routes_[number].first.route;
}

std::size_t Metrics::routes() const {
  const std::lock_guard lock(mutex_);
  return routes_.size();
}

std::string Metrics::expose() const { return prometheus::TextSerializer().Serialize(registry_.Collect()); }

} // namespace oncekey
