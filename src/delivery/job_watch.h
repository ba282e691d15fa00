// JobWatch: counts the jobs in the store for the gauge oncekey_jobs, and finds those that no courier delivers.
//
// A webhook or destination that was renamed or removed leaves its jobs behind. Another gateway on the same store may
// still have it, as during a rolling restart: so a job becomes a dead letter only after it was due for orphan_after.
// When the name is configured again, `oncekey jobs retry` delivers it.
#pragma once

#include "core/job_store.h"
#include "delivery/metrics.h"
#include "gateway/await_store.h"
#include "gateway/shared.h"
#include "net/timers.h"

#include <atomic>
#include <map>
#include <string>
#include <utility>

namespace oncekey {

// Belongs to the loop of its timers.
class JobWatch {
 public:
  JobWatch(GatewayShared& shared, DeliveryMetrics& metrics, Timers& timers);

  void start() { look(); }
  void stop();
  // Has stopped, and no call to the store is under way. From any thread.
  bool over() const { return stopped_.load() && !looking_.load(); }

 private:
  void look();
  Task<void> look_once();
  void show(const std::vector<JobCount>& counts);
  // Makes its overdue jobs dead letters.
  Task<void> bury(std::string route);

  GatewayShared& shared_;
  DeliveryMetrics& metrics_;
  Wakeups wakeups_;
  std::map<std::pair<std::string, JobState>, prometheus::Gauge*> shown_;
  std::atomic<bool> looking_{false};
  std::atomic<bool> stopped_{false};
  Timer timer_;
};

} // namespace oncekey
