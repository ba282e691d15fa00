// time_index: which records a bucket has, by the time they were first received.
//
// Records are kept by their ids, which are hashes; people want to see the newest first. So each batch that claims keys
// also writes, for each bucket, one entry with the ids of those keys. An entry for a batch and not for a record: it
// costs a claim 32 bytes of the log and next to no time. Entries are never changed; they go with their bucket. One may
// name a record that was released, has moved to a later bucket, or was claimed anew since: whoever reads looks the
// record up and compares the time.
//
//   key    first_received:u64 (big-endian) fence:u64 (big-endian)     16 bytes, where a record's key has 32
//   value  ids, 32 bytes each
#pragma once

#include "store/bucket.h"

#include <oncekey/record.h>
#include <oncekey/time.h>

#include <cstdint>
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

// The entries of the batch being built.
class NewEntries {
 public:
  void add(const BucketId& bucket, Time first_received, std::uint64_t fence, const RecordId& id);
  // Calls `put` with the bucket, key and value of each entry, and is empty then.
  template <class Put>
  void write(Put put) {
    for (std::size_t at = 0; at < used_; ++at) {
      const Entry& entry = entries_[at];
      put(entry.bucket, time_key(entry.first_received, entry.fence), entry.ids);
    }
    clear();
  }
  void clear() { used_ = 0; }

 private:
  struct Entry {
    BucketId bucket;
    Time first_received{};
    std::uint64_t fence = 0;
    std::string ids;
  };
  std::vector<Entry> entries_; // those behind used_ keep their memory for the next batch
  std::size_t used_ = 0;
};

} // namespace oncekey
