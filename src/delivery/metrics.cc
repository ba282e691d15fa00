#include "delivery/metrics.h"

namespace oncekey {

DeliveryMetrics::DeliveryMetrics(prometheus::Registry& registry)
    : receipts_(prometheus::BuildCounter()
                    .Name("oncekey_jobs_received_total")
                    .Help("webhooks and outbox messages, by what became of them")
                    .Register(registry)),
      attempts_(prometheus::BuildCounter()
                    .Name("oncekey_job_attempts_total")
                    .Help("attempts to deliver a staged message, by how they ended")
                    .Register(registry)),
      under_way_(prometheus::BuildGauge()
                     .Name("oncekey_jobs_under_way")
                     .Help("deliveries that wait for their receiver's answer")
                     .Register(registry)),
      jobs_(prometheus::BuildGauge()
                .Name("oncekey_jobs")
                .Help("jobs in the store that are waiting, taken or dead")
                .Register(registry)) {}

prometheus::Counter& DeliveryMetrics::receipts(const std::string& endpoint, std::string_view outcome) {
  return receipts_.Add({{"destination", endpoint}, {"outcome", std::string(outcome)}});
}

prometheus::Counter& DeliveryMetrics::attempts(const std::string& endpoint, std::string_view outcome) {
  return attempts_.Add({{"destination", endpoint}, {"outcome", std::string(outcome)}});
}

prometheus::Gauge& DeliveryMetrics::jobs(const std::string& endpoint, std::string_view state) {
  return jobs_.Add({{"destination", endpoint}, {"state", std::string(state)}});
}

prometheus::Gauge& DeliveryMetrics::under_way(const std::string& endpoint) {
  return under_way_.Add({{"destination", endpoint}});
}

} // namespace oncekey
