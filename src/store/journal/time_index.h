// time_index: which records a bucket has, by the time they were first received.
//
// Records are kept by their ids, which are hashes; people want to see the newest first. So a segment that is sealed
// gets, for each bucket and millisecond, one entry with the ids of the records it has. Entries go with their bucket.
// One may name a record that has moved to a later bucket, was claimed anew since, or was released: a listing looks the
// record up and compares the time. Young records need no entry: there are few enough to look at all of them.
//
//   key    first_received:u64 (big-endian) sequence:u64 (big-endian) of the segment's last batch   16 bytes, where a
//          record's key has 32
//   value  ids, 32 bytes each
#pragma once

#include "store/journal/database.h"

#include <oncekey/record.h>
#include <oncekey/time.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace oncekey {

inline constexpr std::size_t kTimeKeyBytes = 16;

inline std::string time_key(Time first_received, std::uint64_t sequence) {
  std::string key;
  key.reserve(kTimeKeyBytes);
  append_big_endian(key, static_cast<std::uint64_t>(first_received.time_since_epoch().count()));
  append_big_endian(key, sequence);
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

} // namespace oncekey
