// ReplayCache: the records of a retry storm, decoded.
//
// When many clients retry one key, every retry but the first would search the same memtable and decode the same bytes.
// A completed record does not change before it expires, so it can be kept as it is; whether it has expired is for the
// reader to see.
#pragma once

#include "store/common/flat_table.h"

#include <oncekey/record.h>

#include <cstring>
#include <mutex>
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
    const std::uint32_t number = shard.number_of(id);
    if (number == kNoEntry) return nullptr;
    shard.unlink(number);
    shard.link_newest(number);
    return shard.entries[number].record;
  }
  // Only for completed records with their whole answer; others and those with large bodies are not kept.
  template <class Given> // a Record
  void insert(const RecordId& id, Given&& record) {
    if (!worth_keeping(record)) return;
    const std::size_t bytes = kEntryBytes + record.response->bytes();
    auto kept = std::make_shared<const Record>(std::forward<Given>(record));
    Shard& shard = shard_of(id);
    const std::lock_guard lock(shard.mutex);
    // A key that expired and was executed anew: the newer record counts.
    if (const std::uint32_t old = shard.number_of(id); old != kNoEntry) shard.drop(old);
    shard.add(id, std::move(kept), bytes);
    while (shard.bytes > shard_bytes_max_) shard.drop(shard.oldest);
  }

 private:
  // The strings and the bookkeeping around them; near enough for a bound.
  static constexpr std::size_t kEntryBytes = sizeof(Record) + 512;
  static constexpr std::size_t kShards = 16; // enough that threads rarely meet on one lock

  struct Entry {
    RecordId id;
    std::shared_ptr<const Record> record; // null for an entry that is free
    std::size_t bytes = 0;
    std::uint32_t newer = kNoEntry, older = kNoEntry; // in the order of use
  };
  // Entries stand in one array and are found by a table of a few bytes each: a key that is not here, as in every first
  // request, costs one look at the table and none at an entry.
  struct Shard {
    std::uint32_t number_of(const RecordId& id) const {
      return by_id.find(hash_of(id), [&](std::uint32_t number) { return entries[number].id == id; });
    }
    void add(const RecordId& id, std::shared_ptr<const Record> record, std::size_t record_bytes) {
      std::uint32_t number = static_cast<std::uint32_t>(entries.size());
      if (free.empty()) {
        entries.emplace_back();
      } else {
        number = free.back();
        free.pop_back();
      }
      entries[number] = {id, std::move(record), record_bytes};
      bytes += record_bytes;
      by_id.insert(hash_of(id), number);
      link_newest(number);
    }
    void drop(std::uint32_t number) {
      Entry& entry = entries[number];
      unlink(number);
      by_id.erase(hash_of(entry.id), number);
      bytes -= entry.bytes;
      entry.record.reset();
      free.push_back(number);
    }
    void link_newest(std::uint32_t number) {
      entries[number].newer = kNoEntry;
      entries[number].older = newest;
      (newest == kNoEntry ? oldest : entries[newest].newer) = number;
      newest = number;
    }
    void unlink(std::uint32_t number) {
      const Entry& entry = entries[number];
      (entry.newer == kNoEntry ? newest : entries[entry.newer].older) = entry.older;
      (entry.older == kNoEntry ? oldest : entries[entry.older].newer) = entry.newer;
    }

    std::mutex mutex;
    FlatTable by_id;
    std::vector<Entry> entries;
    std::vector<std::uint32_t> free;
    std::uint32_t newest = kNoEntry, oldest = kNoEntry;
    std::size_t bytes = 0;
  };
  // The bytes are the output of a keyed hash already.
  static std::uint32_t hash_of(const RecordId& id) {
    std::uint32_t hash;
    std::memcpy(&hash, id.bytes.data(), sizeof hash);
    return hash;
  }
  static bool worth_keeping(const Record& record) {
    return record.state == RecordState::completed && record.response && !record.response->omitted &&
           !record.response->unfinished() && record.response->bytes() <= kReplayCacheBodyBytesMax;
  }
  Shard& shard_of(const RecordId& id) { return shards_[id.bytes[30] % kShards]; }

  const std::size_t shard_bytes_max_;
  std::array<Shard, kShards> shards_;
};

} // namespace oncekey
