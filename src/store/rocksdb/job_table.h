// JobTable: the jobs in a RocksDB database.
//
// A job is two keys of one bucket among the jobs' families: its state, rewritten with every step, and its message,
// written once. Which jobs are due is kept in memory (JobIndex); the default family has a key for each job that is
// waiting, taken or dead, so that the index can be filled again without reading every job there is.
//
//   "s" id:32 bytes    the state     (core/record_codec.h)
//   "m" id:32 bytes    the message
//
// Reads may be made from any thread. The parts with a JobBatch belong to the writer's thread: they answer with what
// will be true once the batch is durable.
#pragma once

#include "core/job_store.h"
#include "store/common/job_index.h"
#include "store/rocksdb/buckets.h"
#include "store/rocksdb/fences.h"

#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace oncekey {

// How long a job whose state cannot be read is left alone.
inline constexpr Millis kUnreadablePause{60'000};

// The batch being built, as far as jobs are concerned.
struct JobBatch {
  rocksdb::WriteBatch& writes;
  Fences& fences;
  std::size_t& records; // how many were written
  Time now{};
};

class JobTable {
 public:
  // The database and the buckets outlive this object.
  JobTable(rocksdb::DB& db, Buckets& buckets) : db_(db), buckets_(buckets) {}

  // A job and where it is kept.
  struct Place {
    StoredJob job;
    BucketId bucket;
  };
  Result<std::optional<Place>> lookup(const RecordId& id) const;
  // Nothing if it was deleted.
  Result<std::optional<Message>> message(const RecordId& id) const;
  Result<JobPage> list(const JobListRequest& request, Time now) const;
  const JobIndex& index() const { return index_; }
  Buckets& buckets() { return buckets_; }

  // Fills the index. Keys of jobs that are over go into `leftovers`, to be removed. Couriers with a fence below
  // `least_fence_here` are gone: what they had taken is due at once.
  Status load(std::uint64_t least_fence_here, Time now, rocksdb::WriteBatch& leftovers);

  // `message` is encoded.
  Result<StageAnswer> stage(const StageRequest& request, const std::string& message, JobBatch& batch);
  // Without the messages.
  Result<std::vector<TakenJob>> take(const TakeRequest& request, JobBatch& batch);
  Result<FenceAnswer> end_attempt(const Ownership& owner, AttemptEnd end, JobBatch& batch);
  Result<JobAnswer> operate(const RecordId& id, JobAction action, JobBatch& batch);
  // Takes jobs that have expired out of the index, some at a time.
  Status forget_expired(JobBatch& batch);
  // The batch is durable.
  void batch_done() { changed_.clear(); }
  // The batch was not written: the index is read again.
  void batch_given_up(Time now);

  // The longest retention staged so far in each class of bucket widths: tells which bucket will be needed next.
  std::map<int, Millis> retentions_in_use() const;

 private:
  // What the batch being built has written: later calls of the batch must see it.
  struct Changed {
    Place place;
    bool staged_now = false; // its message is not in the database yet
  };

  Result<std::optional<Place>> current(const RecordId& id) const;
  Status put(const StoredJob& job, const std::optional<BucketId>& was_in, const BucketId& goes_to,
             const std::string* message, JobBatch& batch);
  Status put_on(const StoredJob& job, const Place& was, JobBatch& batch);
  Status note(const StoredJob& job, JobBatch& batch);
  Status forget(const RecordId& id, JobBatch& batch);
  rocksdb::ColumnFamilyHandle* live_family(const BucketId& bucket) const;

  rocksdb::DB& db_;
  Buckets& buckets_;
  JobIndex index_;
  std::uint64_t least_fence_here_ = 0;
  std::unordered_map<RecordId, Changed> changed_;
  std::string encoded_;
  mutable std::mutex retentions_mutex_;
  std::map<int, Millis> retentions_;
};

} // namespace oncekey
