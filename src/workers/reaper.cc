#include "workers/worker_loop.h"

namespace oncekey {
namespace {

class ReaperLoop final : public CountingLoop<ReaperCounts> {
 public:
  ReaperLoop(Database& database, ReaperOptions options)
      : CountingLoop(options.idle_wait), database_(database), options_(options) {}

  Result<ReaperCounts> run_once() override {
    ReaperCounts counts;
    Status done = reap(counts);
    return ended(counts, std::move(done));
  }

 private:
  bool more(const ReaperCounts&) const override { return false; }
  Status reap(ReaperCounts& counts);

  Database& database_;
  const ReaperOptions options_;
};

// One bucket at a time, each in a transaction of its own: a bucket that is in use is left to the next run.
Status ReaperLoop::reap(ReaperCounts& counts) {
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

} // namespace

ReaperCounts& ReaperCounts::operator+=(const ReaperCounts& other) {
  using C = ReaperCounts;
  return add_counts(*this, other, {&C::answer_buckets, &C::inbox_buckets, &C::postponed});
}

Reaper::Reaper(Database& database, ReaperOptions options)
    : BackgroundWorker(std::make_unique<ReaperLoop>(database, options)) {}

Result<ReaperCounts> Reaper::run_once() { return static_cast<ReaperLoop&>(*impl_).run_once(); }
ReaperCounts Reaper::metrics() const { return static_cast<ReaperLoop&>(*impl_).metrics(); }

} // namespace oncekey
