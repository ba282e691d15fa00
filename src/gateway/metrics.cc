#include "gateway/metrics.h"

#include "base/enum_name.h"
#include "core/decide.h"
#include "core/refusal.h"

#include <prometheus/text_serializer.h>

namespace oncekey {

CounterFamily& counters(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}
GaugeFamily& gauges(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}
HistogramFamily& histograms(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
}

RouteMetrics::RouteMetrics(const RouteFamilies& families, RouteLabels of)
    : labels(std::move(of)),
      retries(families.retries.Add({{"route", labels.route}})),
      stormy_keys(families.stormy_keys.Add({{"route", labels.route}})),
      hottest_key_retries(families.hottest.Add({{"route", labels.route}})),
      upstream_seconds(
          families.upstream_seconds.Add({{"route", labels.route}, {"upstream", labels.upstream}}, kSeconds)) {
  // Every value the label `decision` can have. The verdicts and refusal codes spell themselves; the rest is what else
  // can become of a request.
  const auto add = [&](std::string_view decision) {
    prometheus::Counter& made = families.requests.Add({{"route", labels.route}, {"decision", std::string(decision)}});
    by_decision_.emplace(decision, &made);
  };
  each_enumerator<Verdict>([&](Verdict verdict) { add(to_string(verdict)); });
  each_enumerator<RefusalCode>([&](RefusalCode code) {
    if (code <= kLastGatewayRefusal && !by_decision_.contains(to_string(code))) add(to_string(code));
  });
  for (const std::string_view other :
       {"pass", "websocket", "no_upstream", "bypass", "malformed", "loop", "well_known", "client_gone", "accepted",
        "status_pending", "not_authorized", "observed_execute", "observed_replay", "observed_mismatch",
        "observed_in_progress", "observed_refusal"}) {
    add(other);
  }
}

void RouteMetrics::count(std::string_view decision) const {
  const auto found = by_decision_.find(decision);
  ONCEKEY_CHECK(found != by_decision_.end(), "every decision is known to the metrics");
  found->second->Increment();
}

void RouteMetrics::count(std::string_view decision, const Exchange& exchange) const {
  count(decision);
  if (AccessNote* const note = exchange.note()) {
    note->route = labels.route;
    note->decision = decision;
  }
}

UpstreamMetrics Metrics::upstream(const std::string& name) {
  const prometheus::Labels label{{"upstream", name}};
  return {breaker_refusals_.Add(label), breaker_open_.Add(label), upstream_connections_.Add(label)};
}

std::size_t Metrics::number_of(const RouteLabels& route) {
  const std::lock_guard lock(mutex_);
  for (std::size_t number = 0; number < routes_.size(); ++number) {
    if (routes_[number].labels == route) return number;
  }
  routes_.emplace_back(by_route_, route);
  return routes_.size() - 1;
}

const RouteMetrics& Metrics::route(std::size_t number) const {
  const std::lock_guard lock(mutex_);
  return routes_[number];
}

std::size_t Metrics::routes() const {
  const std::lock_guard lock(mutex_);
  return routes_.size();
}

std::string Metrics::expose_open() const {
  const auto find = [this](const std::string& family,
                           const prometheus::ClientMetric& metric) -> const BucketExemplars* {
    if (family != "oncekey_upstream_seconds") return nullptr;
    RouteLabels labels;
    for (const prometheus::ClientMetric::Label& label : metric.label)
      (label.name == "route" ? labels.route : labels.upstream) = label.value;
    const std::lock_guard lock(mutex_);
    for (const RouteMetrics& route : routes_) {
      if (route.labels == labels) return &route.upstream_exemplars;
    }
    return nullptr;
  };
  return open_metrics_text(registry_.Collect(), find);
}

std::string Metrics::expose() const { return prometheus::TextSerializer().Serialize(registry_.Collect()); }

} // namespace oncekey
