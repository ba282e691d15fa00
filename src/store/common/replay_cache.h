// ReplayCache: the records of a retry storm, decoded.
//
// When many clients retry one key, every retry but the first would search the same memtable and decode the same bytes.
// A completed record does not change before it expires, so it can be kept as it is; whether it has expired is for the
// reader to see.
#pragma once

#include <oncekey/record.h>

#include <cstddef>
#include <list>
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
  std::shared_ptr<const Record> find(const RecordId& id) {
    Shard& shard = shard_of(id);
    const std::lock_guard lock(shard.mutex);
    const auto found = shard.by_id.find(id);
    if (found == shard.by_id.end()) return nullptr;
    shard.entries.splice(shard.entries.begin(), shard.entries, found->second);
    return found->second->record;
  }
  // Only for completed records with their whole answer; others and those with large bodies are not kept.
  template <class Given> // a Record
  void insert(const RecordId& id, Given&& record) {
    if (!worth_keeping(record)) return;
    const std::size_t bytes = kEntryBytes + record.response->bytes();
    auto kept = std::make_shared<const Record>(std::forward<Given>(record));
    Shard& shard = shard_of(id);
    const std::lock_guard lock(shard.mutex);
    if (const auto old = shard.by_id.find(id); old != shard.by_id.end()) {
      // A key that expired and was executed anew: the newer record counts.
      shard.bytes -= old->second->bytes;
      shard.entries.erase(old->second);
      shard.by_id.erase(old);
    }
    shard.entries.push_front({id, std::move(kept), bytes});
    shard.by_id.emplace(id, shard.entries.begin());
    shard.bytes += bytes;
    while (shard.bytes > shard_bytes_max_) {
      shard.bytes -= shard.entries.back().bytes;
      shard.by_id.erase(shard.entries.back().id);
      shard.entries.pop_back();
    }
  }

 private:
  // The strings and the bookkeeping around them; near enough for a bound.
  static constexpr std::size_t kEntryBytes = sizeof(Record) + 512;
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
  static bool worth_keeping(const Record& record) {
    return record.state == RecordState::completed && record.response && !record.response->omitted &&
           !record.response->unfinished() && record.response->bytes() <= kReplayCacheBodyBytesMax;
  }
  Shard& shard_of(const RecordId& id) { return shards_[id.bytes[30] % kShards]; }

  const std::size_t shard_bytes_max_;
  std::array<Shard, kShards> shards_;
};

} // namespace oncekey
