#include <oncekey/workers.h>

#include "phases/engine.h"

namespace oncekey {

Reaper::Reaper(Database& database, ReaperOptions options)
    : BackgroundWorker(options.idle_wait), database_(database), options_(options) {}

Result<ReaperCounts> Reaper::run_once() {
  auto counts = reap();
  if (counts.ok()) {
    working("database");
  } else {
    failing("database", counts.fault().message);
  }
  return counts;
}

Result<ReaperCounts> Reaper::reap() {
  ReaperCounts counts;
  auto expired = database_.engine().expired_buckets(options_.margin);
  if (!expired.ok()) return std::move(expired).fault();
  for (const phases::ExpiredBucket& bucket : *expired) {
    if (stopping()) break;
    auto dropped = database_.engine().drop_bucket(bucket);
    if (!dropped.ok()) return std::move(dropped).fault();
    if (*dropped == phases::Dropped::in_use) {
      ++counts.postponed;
    } else if (bucket.kind == phases::BucketKind::answer) {
      ++counts.answer_buckets;
    } else {
      ++counts.inbox_buckets;
    }
  }
  const std::lock_guard lock(metrics_mutex_);
  total_.answer_buckets += counts.answer_buckets;
  total_.inbox_buckets += counts.inbox_buckets;
  total_.postponed += counts.postponed;
  return counts;
}

ReaperCounts Reaper::metrics() const {
  const std::lock_guard lock(metrics_mutex_);
  return total_;
}

BackgroundWorker::Turn Reaper::turn() { return run_once().ok() ? Turn::idle : Turn::failed; }

} // namespace oncekey
