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

#include <oncekey/record.h>
#include <oncekey/time.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

inline constexpr std::size_t kTimeKeyBytes = 16;

// `fence` makes it unique: that of one of the records.
std::string time_key(Time first_received, std::uint64_t fence);
inline bool is_time_key(std::string_view key) { return key.size() == kTimeKeyBytes; }
Time time_of_key(std::string_view key);

// The ids of an entry.
std::vector<RecordId> ids_in(std::string_view value);

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
  TimeEntryPtr add(const BucketId& bucket, Time first_received, std::uint64_t fence, const RecordId& id);
  // The record is gone.
  void remove(const TimeEntryPtr& entry, const RecordId& id);

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
