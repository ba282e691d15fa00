// JournalStore: the embedded store. One machine, one process, nothing to install; what it has answered survives a
// power cut.
//
// Its parts: the SegmentedLog is what every change goes to and all a request waits for; SortedFiles brings full
// segments of it to RocksDB, where Buckets are dropped whole when their time is over; Entries looks in both; the
// StoreClock says what time it is. A call looks its key up, applies the step of core/transitions under the journal's
// lock, on the caller's thread, and is answered when the batch with the change is durable. An answer that changes
// nothing waits for the batch with what it has seen.
//
// A store that has forgotten (an older copy of its folder was put back: witness.h) refuses claims until an operator has
// accepted the loss. Whatever needs no new claim goes on: replays, completions, jobs.
#pragma once

#include "base/log.h"
#include "core/record_codec.h"
#include "store/common/replay_cache.h"
#include "store/journal/backup.h"
#include "store/journal/ballast.h"
#include "store/journal/body_files.h"
#include "store/journal/buckets.h"
#include "store/journal/entries.h"
#include "store/journal/fences.h"
#include "store/journal/journal_jobs.h"
#include "store/journal/meta.h"
#include "store/journal/segment_files.h"
#include "store/journal/segmented_log.h"
#include "store/journal/sorted_files.h"
#include "store/journal/store_clock.h"
#include "store/journal/tuning.h"
#include "store/journal/unsettled.h"
#include "store/journal/witness.h"

#include "core/store.h"

#include <rocksdb/env.h>

#include <stop_token>

namespace oncekey {

// What a change is for: the end of what was begun, or anything else.
enum class Change { ending, other };

enum class Maintenance { in_background, by_hand };

// A segment is sealed every second or two under full load. With half of it a claim + complete pair costs half as much
// again at a million keys: there are twice as many files to merge, and a new key is looked for in more of them.
inline constexpr std::size_t kStoreSegmentBytes = std::size_t{32} << 20;
// How far the saved clock may lag behind: what a reboot with a wrong wall clock can cost.
inline constexpr Millis kClockSavedEvery{1000};
// More calls than this do not wait for the disk: at fifty thousand a second it is more than a second's work.
inline constexpr std::size_t kWaitingCallsMax = 65536;

struct JournalStoreOptions {
  // Created with its parents if it does not exist.
  std::string path;
  Log& log;
  // See StoreOptions::on_fatal.
  std::function<void(std::string reason)> on_fatal;
  // Seals the secret; null where the store is not encrypted. Outlives the store.
  const Sealer* sealer = nullptr;

  // For tests: a clock to be turned, disks to fail, and buckets that come and go when told.
  ClockSources clock = ClockSources::of_system();
  rocksdb::Env* env = nullptr;
  std::function<std::unique_ptr<DurableWriter>(DurableWriter::Written written)> make_writer{};
  std::size_t segment_bytes = kStoreSegmentBytes;
  Maintenance maintenance = Maintenance::in_background;
};

// An operator's word that what the store has forgotten is accounted for. The store takes the note within a second if a
// process has it open, and else when it is opened next.
enum class LossAcceptance { taken, noted };
Result<LossAcceptance> accept_lost_memory_journal(const std::string& folder);

// Opens it, or starts with a WaitingStore where the disk is too full for that and the store existed before.
Result<std::unique_ptr<Store>> open_journal(const JournalStoreOptions& options);

// What a folder was opened as. The database outlives the buckets' handles.
struct OpenedDatabase {
  std::unique_ptr<rocksdb::DB> db;
  rocksdb::ColumnFamilyOptions bucket_options = oncekey::bucket_options();
  BucketList buckets;
  BucketList job_buckets;
};

inline Fault out_of_room() {
  return unavailable(
      "the store's log is full, since its segments cannot be sealed: the disk is full or too slow; the log of this "
      "process says why");
}

// False when the thread is to stop.
bool sleep_for(std::chrono::milliseconds time, const std::stop_token& stop);

class JournalStore final : public Store {
 public:
  static Result<std::unique_ptr<JournalStore>> open(JournalStoreOptions options);
  ~JournalStore() override;

  void claim(ClaimRequest request, Done<ClaimAnswer> done) override;
  void find(const RecordId& id, Interest interest, Done<std::optional<Found>> done) override;
  void by_fence(FenceCall call) override;
  JobStore& jobs() override { return *jobs_; }
  void operate(const RecordId& id, OperatorAction action, StoredResponse response, Done<OperatorAnswer> done) override;
  void list(const ListRequest& request, Done<std::vector<Listed>> done) override;
  void browse(const BrowseRequest& request, Done<BrowsePage> done) override;
  void count_waiting(Done<WaitingKeys> done) override;
  void owners_here(OwnersHere owners) override;
  std::uint64_t least_fence_here() const override { return least_fence_here_; }
  void write_from(Loop* loop) override;
  Time now() const override { return clock_->now(); }
  const std::array<std::uint8_t, 32>& secret() const override { return meta_.secret; }
  Durability durability() const override { return Durability::power; }
  Status healthy() const override;
  StoreStats stats() const override;
  StoreDetails details() const override;
  Result<BackupMade> back_up(const std::string& folder, const TellProgress& tell) override;

  // One round of maintenance: drops buckets that have ended, looks at the clock and writes the witness.
  Status maintain();

 private:
  JournalStore(const JournalStoreOptions& options, OpenedDatabase opened, StoreMeta meta);
  // Everything that is read before the first call.
  Status start(JournalStoreOptions& options);
  Status load_unsettled();
  void maintain_in_background(const std::stop_token& stop);
  void know_ids(const std::stop_token& stop);

  Status look(const RecordId& id, Likely likely, KeyLook& found) const;
  // The record that was found, if there is one; of a large one without its headers and body.
  Result<std::optional<Record>> decode(const RecordId& id, const KeyLook& found, DecodeBody body) const;
  // Adds them. Others need not wait for that: the lock is given back and taken again, or given back on a fault. So this
  // is for a record that is answered as it was found, and for nothing that is decided by it.
  Status read_body(const RecordId& id, KeyLook& found, Record& record) const;
  Result<std::optional<Record>> read(const RecordId& id) const;
  // Why nothing new may be begun; with the lock.
  Status may_begin() const;
  // Applies a step of core/transitions to the record under the id, and answers once that is durable.
  // `body` is where a large response is.
  template <class T, class MakeStep>
  void apply(const RecordId& id, Change change, const std::optional<BodyReference>& body, Done<T> done,
             MakeStep make_step);
  // Calls `settle` with the file of a large response.
  template <class T, class Settle>
  void with_file(const RecordId& id, const StoredResponse& response, Done<T> done, Settle settle);
  // With the lock.
  Status put(const RecordId& id, Record& record, const std::optional<BucketId>& was_in, const BucketId& goes_to,
             bool takes_fence, Change change, const std::optional<BodyReference>& body = std::nullopt);
  Status erase(const RecordId& id, const BucketId& bucket);
  Status begin_step(std::size_t entries, std::size_t bytes);
  // A step on behalf of a caller, which saves the clock now and then.
  Status begin_change(std::size_t entries, std::size_t bytes, Change change);
  // The room that the endings of what was begun need.
  std::uint64_t reserved() const;
  // Answers once that batch is durable. Gives the lock back.
  template <class T>
  void answer(std::unique_lock<std::mutex> lock, std::uint64_t sequence, Done<T>& done, T value) const;

  // For SortedFiles.
  Result<rocksdb::ColumnFamilyHandle*> family_of(const Family& family, std::span<const SortedFiles::Line> lines);
  std::vector<SortedFiles::Derived> indexes_of(const YoungTable& changes, const LogEnd& sealed);

  Result<BrowsePage> browse_waiting(const BrowseRequest& request) const;
  Result<BrowsePage> browse_by_key(const BrowseRequest& request) const;
  Result<BrowsePage> browse_by_time(const BrowseRequest& request) const;
  // What belongs to this moment, as hard links and copies in the folder kSnapshotFolder.
  Result<BackupNote> take_snapshot(const std::string& snapshot);
  // Compares the store with its witness.
  Status look_for_loss();
  Status accept_loss();
  StoreAt at() const;
  void keep_witness();
  void answer_operator();
  void catch_up_with_wall();

  Log& log_;
  const std::string folder_;
  const StoreMeta meta_;
  const KeyedHash text_hash_;
  const Witness witness_;
  const Ballast ballast_;
  // In the order of need: the database outlives the buckets' handles, and both outlive the journal.
  std::unique_ptr<rocksdb::DB> db_;
  const rocksdb::ColumnFamilyOptions bucket_options_;
  Buckets buckets_;
  Buckets job_buckets_;
  Unsettled unsettled_;
  std::unique_ptr<StoreClock> clock_;
  std::unique_ptr<SegmentFiles> segments_;
  std::unique_ptr<SortedFiles> sorted_;
  std::unique_ptr<SegmentedLog> journal_;
  std::unique_ptr<Entries> entries_;
  std::unique_ptr<BodyFiles> bodies_;
  Fences fences_;                   // guarded by the journal's lock
  std::optional<Time> clock_saved_; // the same
  std::uint64_t writes_ = 0;        // the same
  std::unique_ptr<JournalJobs> jobs_;
  OwnersHere owners_here_;
  std::uint64_t least_fence_here_ = 0;
  mutable ReplayCache replays_{kReplayCacheBytes};

  // Set before the store is handed out, and cleared once the loss is accepted.
  std::optional<Fault> loss_;
  std::atomic<bool> forgetful_ = false;
  bool is_backup_ = false;                 // that was restored, or is used as a store
  bool compared_ = false;                  // with the witness
  bool accepting_loss_ = false;            // the acceptance is on its way to the disk, or there
  std::uint64_t maintained_ = 0;           // rounds
  std::mutex maintenance_mutex_;           // one round at a time
  std::mutex backup_mutex_;                // one at a time
  std::optional<std::uint64_t> witnessed_; // the sequence number in the witness
  bool witness_failed_ = false;            // and it was said
  std::jthread maintenance_;
  std::jthread knowing_; // reads which ids the buckets have
};

} // namespace oncekey
