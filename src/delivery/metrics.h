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

  // A message came in for this endpoint: staged, duplicate, challenge, store_fault, or why it was refused.
  void count_receipt(const std::string& endpoint, std::string_view outcome);
  // An attempt ended: delivered, retry, dead, lost, or put_back without having been made.
  void count_attempt(const std::string& endpoint, std::string_view outcome);
  prometheus::Gauge& under_way(const std::string& endpoint);

 private:
  prometheus::Family<prometheus::Counter>& receipts_;
  prometheus::Family<prometheus::Counter>& attempts_;
  prometheus::Family<prometheus::Gauge>& under_way_;
};

} // namespace oncekey
