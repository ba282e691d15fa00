// RocksdbJobs: the jobs of a RocksdbStore. Reads happen in the caller's thread, changes in the writer's.
//
// A job is two keys of one bucket among the jobs' families: its state, rewritten with every step, and its message,
// written once. Which jobs are due is kept in memory (JobIndex); the default family has a key for each job that is
// waiting, taken or dead, so that the index can be filled again without reading every job there is.
//
//   "s" id:32 bytes    the state     (core/record_codec.h)
//   "m" id:32 bytes    the message
//   "job/" place:u64 (big-endian) id:32 bytes, with no value, in the default family
//
// The parts with a JobBatch belong to the writer's thread: they answer with what will be true once the batch is
// durable.
#pragma once

#include "core/job_store.h"
#include "store/common/job_index.h"
#include "store/rocksdb/buckets.h"
#include "store/rocksdb/fences.h"
#include "store/rocksdb/store_clock.h"

namespace oncekey {

class Writer;

// How long a job whose state cannot be read is left alone.
inline constexpr Millis kUnreadablePause{60'000};

// The batch being built, as far as jobs are concerned.
struct JobBatch {
  rocksdb::WriteBatch& writes;
  Fences& fences;
  std::size_t& records; // how many were written
  Time now{};
};

class RocksdbJobs final : public JobStore {
 public:
  // `may_stage` says why nothing new may be staged, as claims are refused. The others outlive this object.
  RocksdbJobs(rocksdb::DB& db, Buckets& buckets, const StoreClock& clock, std::function<Status()> may_stage)
      : db_(db), buckets_(buckets), clock_(clock), may_stage_(std::move(may_stage)) {}
  // Before the first call. Makes all changes.
  void use(Writer& writer) { writer_ = &writer; }

  void stage(StageRequest request, Done<StageAnswer> done) override;
  void take(const TakeRequest& request, Done<std::vector<TakenJob>> done) override;
  void end_attempt(const Ownership& owner, AttemptEnd end, Done<FenceAnswer> done) override;
  void find(const RecordId& id, Done<std::optional<FoundJob>> done) override;
  void operate(const RecordId& id, const std::string& route, JobAction action, Done<JobAnswer> done) override;
  void list(const JobListRequest& request, Done<JobPage> done) override;
  void count(Done<std::vector<JobCount>> done) override;

  Buckets& buckets() { return buckets_; }
  // Fills the index. Keys of jobs that are over go into `leftovers`, to be removed. Couriers with a fence below
  // `least_fence_here` are gone: what they had taken is due at once.
  Status load(std::uint64_t least_fence_here, Time now, rocksdb::WriteBatch& leftovers);
  // The batch is durable.
  void batch_done() { changed_.clear(); }
  // The batch was not written: the index is read again.
  void batch_given_up(Time now);

 private:
  // A job and where it is kept.
  struct Place {
    std::optional<StoredJob> job; // nothing if there is none
    BucketId bucket;
  };
  // What the batch being built has written: later calls of the batch must see it.
  struct Changed {
    Place place;
    bool staged_now = false; // its message is not in the database yet
  };

  Result<Place> look_up(const RecordId& id) const;
  // Nothing if it was deleted.
  Result<std::optional<Message>> message(const RecordId& id) const;
  Result<std::vector<TakenJob>> with_messages(Result<std::vector<TakenJob>> taken) const;
  Result<JobPage> list(const JobListRequest& request) const;
  // Has the writer do it. `bytes` are those of a message.
  template <class T, class Apply>
  void change(Done<T> done, Apply apply, std::size_t bytes = 0);

  // `message` is encoded.
  Result<StageAnswer> stage(const StageRequest& request, const std::string& message, JobBatch& batch);
  // Without the messages.
  Result<std::vector<TakenJob>> take(const TakeRequest& request, JobBatch& batch);
  Result<FenceAnswer> end_attempt(const Ownership& owner, AttemptEnd end, JobBatch& batch);
  Result<JobAnswer> operate(const RecordId& id, JobAction action, JobBatch& batch);
  // Takes jobs that have expired out of the index, some at a time.
  Status forget_expired(JobBatch& batch);

  Result<Place> current(const RecordId& id) const;
  // With a message it is staged; else it goes on from where it was.
  Status put(const StoredJob& job, const Place& was, const BucketId& goes_to, const std::string* message,
             JobBatch& batch);
  Status put_on(const StoredJob& job, const Place& was, JobBatch& batch);
  Status note(const StoredJob& job, JobBatch& batch);
  Status forget(const RecordId& id, JobBatch& batch);

  rocksdb::DB& db_;
  Buckets& buckets_;
  const StoreClock& clock_;
  const std::function<Status()> may_stage_;
  Writer* writer_ = nullptr;
  JobIndex index_;
  std::uint64_t least_fence_here_ = 0;
  std::unordered_map<RecordId, Changed> changed_;
  std::string encoded_;
};

} // namespace oncekey
