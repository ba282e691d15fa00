// RocksdbStore: the embedded store. One machine, one process, nothing to install; what it has answered survives a
// power cut.
//
// Its parts: Buckets are where records live, the Writer is the only one to change them, the StoreClock says what time
// it is, and a maintenance thread makes buckets ahead of need and drops those whose time is over. Reads (find, list,
// and a claim that only finds) happen in the caller's thread and are answered before the call returns.
//
// Reading while a batch is being written is safe: RocksDB makes a batch visible to readers only after its log is
// synced (in its default write mode, which this store uses), so what a read returns is durable already.
//
// A store that has forgotten (an older copy of its folder was put back: witness.h) refuses claims until an operator has
// accepted the loss. Whatever needs no new claim goes on: replays, completions, jobs.
#pragma once

#include "base/log.h"
#include "store/common/replay_cache.h"
#include "store/rocksdb/ballast.h"
#include "store/rocksdb/buckets.h"
#include "store/rocksdb/meta.h"
#include "store/rocksdb/rocksdb_jobs.h"
#include "store/rocksdb/store_clock.h"
#include "store/rocksdb/tuning.h"
#include "store/rocksdb/watched_files.h"
#include "store/rocksdb/witness.h"
#include "store/rocksdb/writer.h"

#include "core/store.h"

#include <rocksdb/env.h>

#include <stop_token>

namespace oncekey {

enum class Maintenance { in_background, by_hand };

struct RocksdbOptions {
  // Created with its parents if it does not exist.
  std::string path;
  Log& log;
  // See StoreOptions::on_fatal.
  std::function<void(std::string reason)> on_fatal;
  // Seals the secret; null where the store is not encrypted. Outlives the store.
  const Sealer* sealer = nullptr;

  // For tests: a clock to be turned, a disk to fail, and buckets that come and go when told.
  ClockSources clock = ClockSources::of_system();
  rocksdb::Env* env = nullptr;
  Maintenance maintenance = Maintenance::in_background;
};

// An operator's word that what the store has forgotten is accounted for. The store takes the note within a second if a
// process has it open, and else when it is opened next.
enum class LossAcceptance { taken, noted };
Result<LossAcceptance> accept_lost_memory_rocksdb(const std::string& folder);

// Opens it, or starts with a WaitingStore where the disk is too full for that and the store existed before.
Result<std::unique_ptr<Store>> open_rocksdb(const RocksdbOptions& options);

// What a folder was opened as. The database outlives the buckets' handles, and the files outlive the database.
struct OpenedDatabase {
  std::shared_ptr<WatchedFiles> files;
  std::unique_ptr<rocksdb::Env> env;
  std::unique_ptr<rocksdb::DB> db;
  rocksdb::ColumnFamilyOptions bucket_options = oncekey::bucket_options();
  BucketList buckets;
  BucketList job_buckets;
};

// False when the thread is to stop.
bool sleep_for(std::chrono::milliseconds time, const std::stop_token& stop);

class RocksdbStore final : public Store {
 public:
  static Result<std::unique_ptr<RocksdbStore>> open(RocksdbOptions options);
  ~RocksdbStore() override;

  void claim(ClaimRequest request, Done<ClaimAnswer> done) override;
  void find(const RecordId& id, Interest interest, Done<std::optional<Found>> done) override;
  void by_fence(FenceCall call) override;
  JobStore& jobs() override { return jobs_; }
  void operate(const RecordId& id, OperatorAction action, StoredResponse response, Done<OperatorAnswer> done) override;
  void list(const ListRequest& request, Done<std::vector<Listed>> done) override;
  void browse(const BrowseRequest& request, Done<BrowsePage> done) override;
  void count_waiting(Done<WaitingKeys> done) override;
  void owners_here(OwnersHere owners) override;
  std::uint64_t least_fence_here() const override { return least_fence_here_; }
  Time now() const override { return clock_.now(); }
  const std::array<std::uint8_t, 32>& secret() const override { return meta_.secret; }
  Durability durability() const override { return Durability::power; }
  Status healthy() const override;
  StoreStats stats() const override;

  // One round of maintenance: drops buckets that have ended, makes those that will be needed soon, looks at the clock
  // and writes the witness.
  Status maintain();

 private:
  RocksdbStore(RocksdbOptions options, OpenedDatabase opened, StoreMeta meta);
  void maintain_in_background(const std::stop_token& stop);
  Status load_indexes_and_fences();
  Result<UnsettledKeys> read_unsettled(rocksdb::WriteBatch& leftovers) const;
  Result<BrowsePage> browse_waiting(const BrowseRequest& request) const;
  Result<BrowsePage> browse_by_time(const BrowseRequest& request) const;
  void resume_writes();
  bool make_room(std::uint64_t bytes) const;
  // Compares the store with its witness.
  Status look_for_loss();
  void note_loss();
  Status accept_loss();
  StoreAt at() const;
  void keep_witness();
  void answer_operator();
  void catch_up_with_wall();

  Log& log_;
  const std::string folder_;
  const StoreMeta meta_;
  StoreClock clock_;
  const Witness witness_;
  const Ballast ballast_;
  const std::shared_ptr<WatchedFiles> files_;
  const std::unique_ptr<rocksdb::Env> env_;
  // In the order of need: the database outlives the buckets' handles, and both outlive the writer.
  std::unique_ptr<rocksdb::DB> db_;
  Buckets buckets_;
  Buckets job_buckets_;
  RocksdbJobs jobs_;
  std::unique_ptr<Writer> writer_;
  OwnersHere owners_here_;
  std::uint64_t least_fence_here_ = 0;
  ReplayCache replays_{kReplayCacheBytes};

  // Set before the store is handed out, and cleared by the maintenance thread.
  std::atomic<bool> forgetful_ = false;
  std::optional<Fault> loss_;
  // Of the maintenance thread.
  std::optional<std::string> loss_to_note_; // in the database, where it is not yet
  std::mutex maintenance_mutex_;            // one round at a time
  std::optional<std::uint64_t> witnessed_;  // the sequence number in the witness
  bool witness_failed_ = false;             // and it was said
  std::jthread maintenance_;
};

} // namespace oncekey
