#include <oncekey/workers.h>

#include "phases/engine.h"

namespace oncekey {

ReaperCounts& ReaperCounts::operator+=(const ReaperCounts& other) {
  answer_buckets += other.answer_buckets;
  inbox_buckets += other.inbox_buckets;
  postponed += other.postponed;
  return *this;
}

Reaper::Reaper(Database& database, ReaperOptions options)
    : CountingWorker(options.idle_wait), database_(database), options_(options) {}

Result<ReaperCounts> Reaper::run_once() {
  ReaperCounts counts;
  Status done = reap(counts);
  return ended(counts, std::move(done));
}

Status Reaper::reap(ReaperCounts& counts) {
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
  return ok_status();
}

BackgroundWorker::Turn Reaper::turn() { return run_once().ok() ? Turn::idle : Turn::failed; }

} // namespace oncekey
