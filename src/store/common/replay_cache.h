// ReplayCache: the records of a retry storm, decoded.
//
// When many clients retry one key, every retry but the first would search the same memtable and decode the same bytes.
// A completed record does not change before it expires, so it can be kept as it is; whether it has expired is for the
// reader to see.
#pragma once

#include <oncekey/record.h>

#include <array>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace oncekey {

// Enough for a storm over some ten thousand keys with small answers.
inline constexpr std::size_t kReplayCacheBytes = std::size_t{16} << 20;
// Larger answers cost more to send than to look up.
inline constexpr std::size_t kReplayCacheBodyBytesMax = std::size_t{16} << 10;

// Safe to use from several threads.
class ReplayCache {
 public:
  explicit ReplayCache(std::size_t bytes_max) : shard_bytes_max_(bytes_max / kShards) {}

  // Null when it is not here.
  std::shared_ptr<const Record> find(const RecordId& id);
  // Only for completed records with their whole answer; others and those with large bodies are not kept.
  void insert(const RecordId& id, const Record& record);

 private:
  static constexpr std::size_t kShards = 16; // enough that threads rarely meet on one lock

  struct Entry {
    RecordId id;
    std::shared_ptr<const Record> record;
    std::size_t bytes;
  };
  struct Shard {
    std::mutex mutex;
    std::list<Entry> entries; // the one used last is first
    std::unordered_map<RecordId, std::list<Entry>::iterator> by_id;
    std::size_t bytes = 0;
  };
  Shard& shard_of(const RecordId& id) { return shards_[id.bytes[30] % kShards]; }

  const std::size_t shard_bytes_max_;
  std::array<Shard, kShards> shards_;
};

} // namespace oncekey
