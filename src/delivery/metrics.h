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
  explicit DeliveryMetrics(prometheus::Registry& registry);

  // Messages that came in for an endpoint: staged, duplicate, challenge, store_fault, or why they were refused. Looking
  // a counter up takes a lock: keep it where it is used often.
  prometheus::Counter& receipts(const std::string& endpoint, std::string_view outcome);
  // Attempts that ended: delivered, retry, dead, lost, or put_back without having been made.
  prometheus::Counter& attempts(const std::string& endpoint, std::string_view outcome);
  prometheus::Gauge& under_way(const std::string& endpoint);
  // Jobs in the store.
  prometheus::Gauge& jobs(const std::string& endpoint, std::string_view state);

 private:
  prometheus::Family<prometheus::Counter>& receipts_;
  prometheus::Family<prometheus::Counter>& attempts_;
  prometheus::Family<prometheus::Gauge>& under_way_;
  prometheus::Family<prometheus::Gauge>& jobs_;
};

} // namespace oncekey
