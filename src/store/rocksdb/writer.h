// Writer: the one thread that changes the store, with group commit.
//
// Whatever all callers want written while a sync runs is gathered, applied in order by the pure steps of
// core/transitions, put into one batch, and synced once; only then are the calls answered. No call waits for more than
// the sync under way plus one. Because every change passes through here, in order, two claims of one key always see
// each other, on whichever side of a bucket's border they fall.
//
// Reading less. The records of owners at work are kept here without their bodies, so that renew, complete, release
// and hold read nothing. A claim brings the record its caller has looked up, with the number of the last batch that
// lookup was sure to see; it is looked up again only if a later batch may have written the id.
//
// Jobs are changed here as well, in the same batches: rocksdb_jobs.h.
//
// When a sync fails nothing is tried again: a second sync may report success for pages the kernel has dropped. The
// calls under way are never answered, `on_fatal` hears why, and every later call is refused. When a file could not be
// written at all (WatchedFiles tells the two apart), the batch is given up: its calls are answered with a fault, the
// process lives, and the next batch is tried when it comes. RocksDB refuses writes until the disk has room again.
#pragma once

#include "store/common/calls.h"
#include "store/rocksdb/buckets.h"
#include "store/rocksdb/fences.h"
#include "store/rocksdb/rocksdb_jobs.h"
#include "store/rocksdb/store_clock.h"
#include "store/rocksdb/time_index.h"
#include "store/rocksdb/unsettled.h"

#include "core/store.h"

#include <rocksdb/db.h>

#include <condition_variable>
#include <thread>

namespace oncekey {

// One batch, so that a few large bodies do not make everybody wait for one huge sync.
inline constexpr std::size_t kBatchBytesMax = std::size_t{16} << 20;
// Owners at work whose records are kept in memory. More may be at work; theirs are then read from the database.
inline constexpr std::size_t kOwnersKeptMax = 16384;
// How far the saved clock may lag behind: what a reboot with a wrong wall clock can cost.
inline constexpr Millis kClockSavedEvery{1000};

struct WriterOptions {
  std::function<void(std::string reason)> on_fatal;
  // Whether what is on disk has become unknown; see WatchedFiles.
  std::function<bool()> sync_failed;
  // Whether the disk has room for a batch of so many bytes, and for what goes on beside it.
  std::function<bool(std::uint64_t bytes)> has_room;
  // Reads the keys that are not settled from the database again, after a batch that changed them was given up.
  std::function<Result<UnsettledKeys>()> load_unsettled;
};

class Writer {
 public:
  // The database, the buckets, the jobs and the clock outlive the writer.
  Writer(rocksdb::DB& db, Buckets& buckets, RocksdbJobs& jobs, const StoreClock& clock, WriterOptions options);
  // Commits what is queued, saves the clock, and ends the thread.
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // A call and its answer, which is set while a batch is built.
  template <class Asked, class T>
  struct Answered : Asked {
    std::optional<Result<T>> answer{};
  };
  // A claim with what its caller found. `seen` was taken from last_batch() before the lookup.
  struct ClaimCall : Answered<oncekey::ClaimCall, ClaimAnswer> {
    std::uint64_t seen = 0;
    std::optional<Stored> found;
  };
  using FenceCall = Answered<oncekey::FenceCall, FenceAnswer>;
  using OperatorCall = Answered<oncekey::OperatorCall, OperatorAnswer>;
  // A change of jobs.
  template <class T>
  struct JobCall {
    std::function<Result<T>(JobBatch& batch)> apply;
    Done<T> done;
    std::size_t message_bytes = 0;
    std::optional<Result<T>> answer{};
  };
  using Call = std::variant<ClaimCall, FenceCall, OperatorCall, JobCall<StageAnswer>, JobCall<std::vector<TakenJob>>,
                            JobCall<FenceAnswer>, JobCall<JobAnswer>, JobCall<std::vector<JobCount>>>;

  // What was found when the store was opened. Before the first call.
  void start_with(UnsettledKeys unsettled, const Fences& fences);
  // See Store::owners_here. Before the first call.
  void owners_here(Store::OwnersHere owners);

  // Queues the call, or answers it at once with a fault when the queue is full or the store has failed.
  void submit(Call call);

  // The number of the newest batch that is durable and visible to every reader.
  std::uint64_t last_batch() const { return last_batch_.load(std::memory_order_acquire); }

  // A fault once nothing can be trusted any more: reads too are refused then.
  Status healthy() const;
  // The same, and a fault while the disk is full.
  Status can_write() const;
  // There is room again, it seems: the next batch shows.
  void try_again() { is_short_.store(false, std::memory_order_release); }
  std::uint64_t syncs() const { return syncs_.load(std::memory_order_relaxed); }
  std::uint64_t writes() const { return writes_.load(std::memory_order_relaxed); }
  Unsettled& unsettled() { return unsettled_; }

 private:
  // What the store has under an id, all batches and the one being built counted in. The record is nothing if there is
  // none. Valid until the next put.
  struct Current {
    std::optional<Record> record;
    BucketId bucket;
    TimeEntryPtr entry{}; // of the time index, while the record may be released
  };

  void run();
  bool take(std::vector<Call>& calls);
  void commit(std::vector<Call>& calls);
  void apply_call(ClaimCall& call, Time now);
  void apply_call(FenceCall& call, Time now);
  void apply_call(OperatorCall& call, Time now);
  template <class T>
  void apply_call(JobCall<T>& call, Time now);
  // Answers the call with what `step` makes of the record.
  template <class Wanted, class Step>
  void apply_step(const RecordId& id, Wanted& call, Step step);
  Status erase(const RecordId& id, const Current& found);
  // With a claim, what its caller has found, unless a later batch may have written the id.
  Result<const Current*> current(const RecordId& id, ClaimCall* claim = nullptr);
  Status put(const RecordId& id, Record&& record, const std::optional<BucketId>& was_in, const BucketId& goes_to);
  Result<rocksdb::ColumnFamilyHandle*> family_of(const BucketId& id);
  rocksdb::Status write_indexes(Time now);
  enum class Written { yes, given_up, never_known };
  Written write_batch();
  // Forgets what the batch had changed in memory, and puts the fault into the answers of its calls.
  void give_up_batch(std::vector<Call>& calls, std::size_t begin, std::size_t end);
  void save_clock(Time now);
  void answer(std::vector<Call>& calls, std::size_t begin, std::size_t end);
  void complete_answer(ClaimCall& call);
  void forget_settled();
  void fail(const std::string& reason);

  rocksdb::DB& db_;
  Buckets& buckets_;
  RocksdbJobs& jobs_;
  const StoreClock& clock_;
  const WriterOptions options_;

  mutable std::mutex queue_mutex_;
  std::condition_variable queue_filled_;
  std::vector<Call> queue_;
  std::size_t queued_bytes_ = 0;
  bool writer_waits_ = false;
  bool stopping_ = false;
  std::optional<Fault> failure_;  // guarded by queue_mutex_; for good
  std::optional<Fault> shortage_; // guarded by queue_mutex_; of the last batch, if that was given up
  std::atomic<bool> is_short_ = false;
  std::atomic<bool> failed_ = false;

  std::atomic<std::uint64_t> last_batch_ = 0;
  std::atomic<std::uint64_t> syncs_ = 0;
  std::atomic<std::uint64_t> writes_ = 0;

  Store::OwnersHere owners_here_;
  Unsettled unsettled_;

  // All below belongs to the writer's thread.
  Fences fences_;
  rocksdb::WriteBatch batch_;
  std::uint64_t batch_number_ = 1; // of the batch being built
  std::size_t batch_records_ = 0;
  std::string encoded_;
  std::optional<Time> clock_saved_;
  // Records of owners at work, and of everything written in the batch being built, which later calls of the same batch
  // must see. The newest truth for the ids it has.
  std::unordered_map<RecordId, Current> known_;
  ChangedEntries entries_;                 // of the time index
  Current looked_up_;                      // what the last call found that is not among the known
  std::shared_ptr<const BucketList> live_; // the pinned list of the batch being built
  std::vector<RecordId> settled_;          // known_ entries to forget once the batch is durable
  // For each slot the newest batch that wrote an id of that slot. Ids that share a slot cost a lookup, nothing more.
  std::vector<std::uint64_t> written_in_;

  std::thread thread_;
};

} // namespace oncekey
