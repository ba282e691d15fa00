#include "store/rocksdb/time_index.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace oncekey {
namespace {

void append_big_endian(std::string& out, std::uint64_t number) {
  for (int shift = 56; shift >= 0; shift -= 8) out.push_back(static_cast<char>(number >> shift & 0xff));
}

} // namespace

std::string time_key(Time first_received, std::uint64_t fence) {
  std::string key;
  key.reserve(kTimeKeyBytes);
  append_big_endian(key, static_cast<std::uint64_t>(first_received.time_since_epoch().count()));
  append_big_endian(key, fence);
  return key;
}

Time time_of_key(std::string_view key) {
  std::uint64_t millis = 0;
  for (const char byte : key.substr(0, 8)) millis = millis << 8 | static_cast<std::uint8_t>(byte);
  return Time{Millis{static_cast<std::int64_t>(millis)}};
}

std::vector<RecordId> ids_in(std::string_view value) {
  std::vector<RecordId> ids(value.size() / sizeof(RecordId));
  for (RecordId& id : ids) {
    std::memcpy(id.bytes.data(), value.data(), id.bytes.size());
    value.remove_prefix(id.bytes.size());
  }
  return ids;
}

TimeEntryPtr ChangedEntries::add(const BucketId& bucket, Time first_received, std::uint64_t fence, const RecordId& id) {
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

void ChangedEntries::remove(const TimeEntryPtr& entry, const RecordId& id) {
  std::string& ids = entry->ids;
  for (std::size_t at = 0; at < ids.size(); at += sizeof id.bytes) {
    if (std::memcmp(ids.data() + at, id.bytes.data(), sizeof id.bytes) != 0) continue;
    ids.erase(at, sizeof id.bytes);
    break;
  }
  if (std::exchange(entry->changed, true)) return;
  changed_.push_back(entry);
}

} // namespace oncekey
