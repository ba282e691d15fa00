// Overview: the state of the gateway now, and of the last hour.
//
// Every few seconds it reads the counters that requests have moved anyway and adds a row to the History: requests pay
// nothing for it. With the same timer the gateway tells the store that it is alive, and learns which others are.
//
// Belongs to the loop of the operators.
#pragma once

#include "admin/history.h"
#include "admin/page_answer.h"
#include "core/job_store.h"
#include "gateway/await_store.h"
#include "gateway/shared.h"
#include "http/server.h"
#include "net/loop.h"

#include <boost/json/object.hpp>

namespace oncekey {

// What StoreWatch has counted last. On the loop of the operators.
struct StoreCounts {
  WaitingKeys keys;
  std::vector<JobCount> jobs;
};

// Why a gateway is not ready; empty if it is.
struct Readiness {
  std::string state = "ready"; // starting, draining, store
  std::string reason;          // may name paths and hosts: not for strangers
};
Readiness readiness(const GatewayShared& shared, const Server* gateway);

class Overview {
 public:
  Overview(GatewayShared& shared, const StoreCounts& counts, Loop& loop, std::string version);

  // The public listener, once there is one.
  void serves(const Server& gateway) { gateway_ = &gateway; }
  void start() { look(); }
  void stop();
  // Has stopped, and no call to the store is under way. From any thread.
  bool over() const { return stopped_.load() && !beating_.load(); }

  // `bulk` is the run under way, or null.
  PageAnswer show(std::string_view query, boost::json::value bulk) const;
  // The keys that are retried most, at most `limit` of them.
  boost::json::object storms(std::size_t limit) const;

 private:
  // What the last row counted from.
  struct Totals {
    std::array<double, kHistoryColumns> decisions{};
    BucketCounts upstream;
    BucketCounts store;
  };
  void look();
  Totals totals() const;
  Task<void> beat();
  boost::json::object live() const;
  boost::json::array gateways() const;
  boost::json::object jobs() const;

  GatewayShared& shared_;
  const StoreCounts& counts_;
  Loop& loop_;
  const std::string version_;
  const std::string instance_;
  const Time started_;
  const MonotonicTime started_at_;
  const std::uint64_t memory_limit_; // 0: not known
  const Server* gateway_ = nullptr;
  History history_;
  Totals last_;
  std::vector<GatewayBeat> beats_; // as the store has told last
  std::atomic<bool> beating_{false};
  std::atomic<bool> stopped_{false};
  Timer timer_;
};

} // namespace oncekey
