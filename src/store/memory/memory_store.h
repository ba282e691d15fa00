// MemoryStore: records in this process alone, for tests and demonstrations. Keeps nothing over a restart and says so.
//
// Ids are spread over shards, each with its own lock; within a shard records are kept by bucket, and a bucket whose
// stretch of time is over is dropped whole. Everything is answered in the caller's thread, before the call returns.
#pragma once

#include "core/bucket.h"
#include "store/memory/memory_jobs.h"

#include "core/store.h"

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

namespace oncekey {

// A demonstration that grows beyond this wants a store on disk; with small bodies it is about half a gigabyte.
inline constexpr std::uint64_t kMemoryRecordsMax = 1'000'000;
// Bodies and headers of all responses together.
inline constexpr std::uint64_t kMemoryResponseBytesMax = std::uint64_t{1} << 30;

struct MemoryOptions {
  std::uint64_t records_max = kMemoryRecordsMax;
  std::uint64_t response_bytes_max = kMemoryResponseBytesMax;
  // Runs evenly, whatever happens to the wall clock. Tests turn it themselves.
  std::function<Time()> now = {};
};

class MemoryStore final : public Store {
 public:
  explicit MemoryStore(MemoryOptions options = {});

  void claim(ClaimRequest request, Done<ClaimAnswer> done) override;
  void find(const RecordId& id, Interest interest, Done<std::optional<Found>> done) override;
  void renew(const Ownership& owner, Millis lease, Done<FenceAnswer> done) override;
  void complete(const Ownership& owner, StoredResponse response, Done<FenceAnswer> done) override;
  void release(const Ownership& owner, Done<FenceAnswer> done) override;
  void hold(const Ownership& owner, Holder by, Done<FenceAnswer> done) override;
  JobStore& jobs() override { return jobs_; }
  void operate(const RecordId& id, OperatorAction action, StoredResponse response, Done<OperatorAnswer> done) override;
  void list(const ListRequest& request, Done<std::vector<Listed>> done) override;
  // Looks at every record: there are kMemoryRecordsMax at most.
  void browse(const BrowseRequest& request, Done<BrowsePage> done) override;
  void count_waiting(Done<WaitingKeys> done) override;
  void owners_here(OwnersHere owners) override { owners_here_ = std::move(owners); }
  Time now() const override { return options_.now(); }
  const std::array<std::uint8_t, 32>& secret() const override { return secret_; }
  Durability durability() const override { return Durability::none; }
  Status healthy() const override { return ok_status(); }
  StoreStats stats() const override;

 private:
  struct BucketContent {
    std::unordered_map<RecordId, Record> records;
    std::uint64_t response_bytes = 0;
  };
  struct Shard {
    mutable std::mutex mutex;
    std::map<BucketId, BucketContent> buckets;
    std::unordered_set<RecordId> unsettled; // keys in progress or indeterminate; may hold some that have expired
  };
  static constexpr std::size_t kShards = 64;

  Shard& shard_of(const RecordId& id) { return shards_[id.bytes[31] % kShards]; }
  void sweep();
  // All of these need the shard's lock.
  void drop_ended(Shard& shard, Time now);
  const Record* look_up(const Shard& shard, const RecordId& id) const;
  void write(Shard& shard, const RecordId& id, Record record);
  void take_out(Shard& shard, const RecordId& id);
  void erase(Shard& shard, const RecordId& id);
  template <class Step>
  void by_fence(const Ownership& owner, Done<FenceAnswer> done, Step step);

  MemoryOptions options_;
  OwnersHere owners_here_;
  std::atomic<std::uint64_t> next_fence_;
  std::array<std::uint8_t, 32> secret_;
  std::array<Shard, kShards> shards_;
  MemoryUse use_;
  MemoryJobs jobs_;
  std::atomic<std::int64_t> next_sweep_ = 0; // on the store's clock
  std::atomic<std::uint64_t> writes_ = 0;
};

} // namespace oncekey
