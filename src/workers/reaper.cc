#include "phases/engine.h"
#include "workers/worker_loop.h"

namespace oncekey {
namespace {

class ReaperLoop final : public BackgroundWorker::Impl {
 public:
  ReaperLoop(Database& database, ReaperOptions options)
      : Impl(options.idle_wait), database_(database), options_(options) {}

  Result<ReaperCounts> run_once();
  ReaperCounts metrics() const {
    const std::lock_guard lock(metrics_mutex_);
    return total_;
  }

 private:
  Turn turn() override { return run_once().ok() ? Turn::idle : Turn::failed; }
  Result<ReaperCounts> reap();

  Database& database_;
  const ReaperOptions options_;
  mutable std::mutex metrics_mutex_;
  ReaperCounts total_;
};

Result<ReaperCounts> ReaperLoop::run_once() {
  auto counts = reap();
  if (counts.ok()) {
    working("database");
  } else {
    failing("database", counts.fault().message);
  }
  return counts;
}

// One bucket at a time, each in a transaction of its own: a bucket that is in use is left to the next run.
Result<ReaperCounts> ReaperLoop::reap() {
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

} // namespace

Reaper::Reaper(Database& database, ReaperOptions options)
    : BackgroundWorker(std::make_unique<ReaperLoop>(database, options)) {}

Result<ReaperCounts> Reaper::run_once() { return static_cast<ReaperLoop&>(*impl_).run_once(); }
ReaperCounts Reaper::metrics() const { return static_cast<ReaperLoop&>(*impl_).metrics(); }

} // namespace oncekey
