// StoreSource: the jobs of one webhook or destination in the gateway's store.
#pragma once

#include "delivery/held_job.h"
#include "delivery/metrics.h"
#include "gateway/await_store.h"
#include "gateway/shared.h"

#include <random>

namespace oncekey {

class StoreSource final : public GatewaySource {
 public:
  // `share` is what its jobs may hold of the memory: a receiver that hangs holds up its own alone.
  StoreSource(GatewayShared& shared, DeliveryMetrics& metrics, Loop& loop, const Endpoint& endpoint,
              std::uint64_t longest_message, std::uint64_t share);

  void take(std::size_t limit, std::function<void(std::vector<HeldJob>)> done) override;
  std::size_t room() const override;
  bool still_ours(const HeldJob& job) const override;
  void end(HeldJob& job, Delivered delivered, std::function<void()> done) override;
  void give_back(HeldJob& job, std::function<void()> done) override;

 private:
  Task<void> take_due(std::size_t limit, std::function<void(std::vector<HeldJob>)> done);
  enum class Tried { no, yes };
  Task<void> end_unreadable(const TakenJob& taken);
  Task<void> write_end(const StoredJob& job, AttemptEnd end, Tried tried, std::function<void()> done);
  void log_end(const StoredJob& job, const AttemptEnd& end) const;

  GatewayShared& shared_;
  DeliveryMetrics& metrics_;
  Loop& loop_;
  const Endpoint& endpoint_;
  const Millis lease_;
  const std::uint64_t message_bytes_max_;
  const std::uint64_t share_;
  std::uint64_t held_ = 0;
  bool failing_ = false; // the store; said once in the log
  std::minstd_rand random_;
  prometheus::Counter& delivered_;
};

} // namespace oncekey
