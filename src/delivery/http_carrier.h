// HttpCarrier: sends the jobs of one webhook or destination to its URL.
#pragma once

#include "delivery/held_job.h"
#include "delivery/metrics.h"
#include "gateway/shared.h"
#include "http/upstream.h"
#include "net/loop.h"

#include <atomic>
#include <memory>

namespace oncekey {

class HttpCarrier final : public GatewayCarrier {
 public:
  // A fault says why the endpoint cannot be used.
  static Result<std::unique_ptr<HttpCarrier>> make(const Endpoint& endpoint, const Config& config, Loop& loop,
                                                   DeliveryMetrics& metrics);

  void carry(const HeldJob& job, std::function<void(Delivered)> done) override;
  void close_idle() { pool_->close_idle(); }

 private:
  HttpCarrier(const Endpoint& endpoint, prometheus::Gauge& under_way) : endpoint_(endpoint), under_way_(under_way) {}
  Task<void> send(const HeldJob& job, std::function<void(Delivered)> done);
  Task<void> call(const HeldJob& job, Delivered& delivered);

  const Endpoint& endpoint_;
  prometheus::Gauge& under_way_;
  std::atomic<std::uint32_t> connections_{0};
  std::unique_ptr<UpstreamPool> pool_;
};

} // namespace oncekey
