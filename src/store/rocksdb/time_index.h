// time_index: which records a bucket has, by the time they were first received.
//
// Records are kept by their ids, which are hashes; people want to see the newest first. So each batch that claims keys
// also writes, for each bucket, one entry with the ids of those keys. An entry for a batch and not for a record: it
// costs a claim 32 bytes of the log and next to no time. Entries go with their bucket; before that only a release
// changes one. It may name a record that has moved to a later bucket, was claimed anew since, or was released after a
// restart: a listing looks the record up and compares the time.
//
//   key    first_received:u64 (big-endian) fence:u64 (big-endian)     16 bytes, where a record's key has 32
//   value  ids, 32 bytes each
#pragma once

#include "core/bucket.h"
#include "store/rocksdb/database.h"

#include <oncekey/record.h>
#include <oncekey/time.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace oncekey {

inline constexpr std::size_t kTimeKeyBytes = 16;

// `fence` makes it unique: that of one of the records.
inline std::string time_key(Time first_received, std::uint64_t fence) {
  std::string key;
  key.reserve(kTimeKeyBytes);
  append_big_endian(key, static_cast<std::uint64_t>(first_received.time_since_epoch().count()));
  append_big_endian(key, fence);
  return key;
}
inline bool is_time_key(std::string_view key) { return key.size() == kTimeKeyBytes; }
inline Time time_of_key(std::string_view key) { return Time{Millis{static_cast<std::int64_t>(big_endian_in(key))}}; }

// The ids of an entry.
inline std::vector<RecordId> ids_in(std::string_view value) {
  std::vector<RecordId> ids(value.size() / sizeof(RecordId));
  for (RecordId& id : ids) {
    std::memcpy(id.bytes.data(), value.data(), id.bytes.size());
    value.remove_prefix(id.bytes.size());
  }
  return ids;
}

// One entry, as long as a record of it may be released: a released claim must not leave its id behind, or callers whose
// requests are never kept would fill the store.
struct TimeEntry {
  BucketId bucket;
  Time first_received{};
  std::string key;
  std::string ids;
  bool written = false; // in an earlier batch
  bool changed = false; // in the batch being built
};
using TimeEntryPtr = std::shared_ptr<TimeEntry>;

// The entries that the batch being built makes or changes.
class ChangedEntries {
 public:
  // Adds the id to the batch's entry for that bucket and time.
  TimeEntryPtr add(const BucketId& bucket, Time first_received, std::uint64_t fence, const RecordId& id) {
    // A batch has few: one for each width of buckets, those of records that move, and those of releases.
    const auto fits = [&](const TimeEntryPtr& entry) {
      return !entry->written && entry->bucket == bucket && entry->first_received == first_received;
    };
    auto at = std::find_if(changed_.begin(), changed_.end(), fits);
    if (at == changed_.end()) {
      auto made = std::make_shared<TimeEntry>();
      made->bucket = bucket;
      made->first_received = first_received;
      made->key = time_key(first_received, fence);
      made->changed = true;
      at = changed_.insert(changed_.begin(), std::move(made)); // in front, where the next one looks first
    }
    (*at)->ids.append(reinterpret_cast<const char*>(id.bytes.data()), id.bytes.size());
    return *at;
  }
  // The record is gone.
  void remove(const TimeEntryPtr& entry, const RecordId& id) {
    std::string& ids = entry->ids;
    for (std::size_t at = 0; at < ids.size(); at += sizeof id.bytes) {
      if (std::memcmp(ids.data() + at, id.bytes.data(), sizeof id.bytes) != 0) continue;
      ids.erase(at, sizeof id.bytes);
      break;
    }
    if (std::exchange(entry->changed, true)) return;
    changed_.push_back(entry);
  }

  // Calls `put` with each that is to be written; one without ids is to be removed.
  template <class Put>
  void write(Put put) {
    for (const TimeEntryPtr& entry : changed_) {
      if (entry->written || !entry->ids.empty()) put(*entry);
      entry->written = true;
      entry->changed = false;
    }
    changed_.clear();
  }
  void clear() { changed_.clear(); }

 private:
  std::vector<TimeEntryPtr> changed_;
};

} // namespace oncekey
