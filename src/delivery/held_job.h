// HeldJob: a job that a courier has taken. Its body counts for its destination and for the gateway as long as it is in
// memory.
#pragma once

#include "base/shares.h"
#include "core/job_store.h"
#include "delivery/attempt.h"
#include "jobs/courier.h"

#include <cstdint>
#include <utility>

namespace oncekey {

class HeldJob {
 public:
  HeldJob(Shares& shares, std::uint64_t& held_here, TakenJob taken)
      : job(std::move(taken.job)),
        message(std::move(taken.message)),
        held_(shares, Resource::buffered_bytes, nullptr), // in no caller's share
        held_here_(held_here) {
    held_.add(message.body.size());
    held_here_ += held_.held();
  }
  HeldJob(HeldJob&& other) noexcept = default;
  HeldJob& operator=(HeldJob&&) = delete;
  ~HeldJob() { held_here_ -= held_.held(); } // nothing if it was moved from

  StoredJob job;
  Message message;

 private:
  Holding held_;
  std::uint64_t& held_here_;
};

using GatewayCourier = Courier<HeldJob, Delivered>;
using GatewaySource = JobSource<HeldJob, Delivered>;
using GatewayCarrier = Carrier<HeldJob, Delivered>;

} // namespace oncekey
