// metrics: what the inbox, the outbox and the deliveries count.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <string>
#include <string_view>

namespace oncekey {

class DeliveryMetrics {
 public:
  explicit DeliveryMetrics(prometheus::Registry& registry)
      : receipts_(prometheus::BuildCounter()
                      .Name("oncekey_jobs_received_total")
                      .Help("Webhooks and outbox messages, by what became of them")
                      .Register(registry)),
        attempts_(prometheus::BuildCounter()
                      .Name("oncekey_job_attempts_total")
                      .Help("Attempts to deliver a staged message, by how they ended")
                      .Register(registry)),
        under_way_(prometheus::BuildGauge()
                       .Name("oncekey_jobs_under_way")
                       .Help("Deliveries that wait for their receiver's answer")
                       .Register(registry)),
        jobs_(prometheus::BuildGauge()
                  .Name("oncekey_jobs")
                  .Help("Jobs in the store that are waiting, taken or dead")
                  .Register(registry)) {}

  // Messages that came in for an endpoint: staged, duplicate, challenge, store_fault, or why they were refused. Looking
  // a counter up takes a lock: keep it where it is used often.
  prometheus::Counter& receipts(const std::string& endpoint, std::string_view outcome) {
    return receipts_.Add({{"destination", endpoint}, {"outcome", std::string(outcome)}});
  }
  // Attempts that ended: delivered, retry, dead, lost, or put_back without having been made.
  prometheus::Counter& attempts(const std::string& endpoint, std::string_view outcome) {
    return attempts_.Add({{"destination", endpoint}, {"outcome", std::string(outcome)}});
  }
  prometheus::Gauge& under_way(const std::string& endpoint) { return under_way_.Add({{"destination", endpoint}}); }
  // Jobs in the store.
  prometheus::Gauge& jobs(const std::string& endpoint, std::string_view state) {
    return jobs_.Add({{"destination", endpoint}, {"state", std::string(state)}});
  }

 private:
  prometheus::Family<prometheus::Counter>& receipts_;
  prometheus::Family<prometheus::Counter>& attempts_;
  prometheus::Family<prometheus::Gauge>& under_way_;
  prometheus::Family<prometheus::Gauge>& jobs_;
};

} // namespace oncekey
