// StoreWatch: counts what waits in the store, for the gauges oncekey_keys and oncekey_jobs and for the log, and finds
// jobs that no courier delivers.
//
// A key that was lost in a crash is seen by no client that gave up. So it is logged at the start and whenever there are
// more, and an alert can hang on the gauge.
//
// A webhook or destination that was renamed or removed leaves its jobs behind. Another gateway on the same store may
// still have it, as during a rolling restart: so a job becomes a dead letter only after it was due for orphan_after.
// When the name is configured again, `oncekey jobs retry` delivers it.
#pragma once

#include "admin/overview.h"
#include "core/job_store.h"
#include "delivery/metrics.h"
#include "gateway/await_store.h"
#include "gateway/shared.h"
#include "net/loop.h"

#include <map>

namespace oncekey {

// Belongs to the loop of its timers.
class StoreWatch {
 public:
  // What it counts is also put into `counts`, for the console.
  StoreWatch(GatewayShared& shared, DeliveryMetrics& metrics, StoreCounts& counts, Loop& loop);

  void start() { look(); }
  void stop();
  // Has stopped, and no call to the store is under way. From any thread.
  bool over() const { return stopped_.load() && !looking_.load(); }

 private:
  void look();
  Task<void> look_once();
  void say(const WaitingKeys& counted);
  void show(const std::vector<JobCount>& counts);
  // Makes the overdue jobs of a route dead letters.
  Task<void> bury(std::string route);

  GatewayShared& shared_;
  DeliveryMetrics& metrics_;
  StoreCounts& counts_;
  Loop& loop_;
  WaitingKeys said_;
  MonotonicTime say_again_{};
  std::map<std::pair<std::string, JobState>, prometheus::Gauge*> shown_;
  std::atomic<bool> looking_{false};
  std::atomic<bool> stopped_{false};
  Timer timer_;
};

} // namespace oncekey
