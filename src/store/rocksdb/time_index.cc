#include "store/rocksdb/time_index.h"

#include <cstring>

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

void NewEntries::add(const BucketId& bucket, Time first_received, std::uint64_t fence, const RecordId& id) {
  // A batch has few: one for each width of buckets, and those of records that move.
  std::size_t at = 0;
  while (at < used_ && (entries_[at].bucket != bucket || entries_[at].first_received != first_received)) ++at;
  if (at == used_) {
    if (used_ == entries_.size()) entries_.emplace_back();
    entries_[at].bucket = bucket;
    entries_[at].first_received = first_received;
    entries_[at].fence = fence;
    entries_[at].ids.clear();
    ++used_;
  }
  entries_[at].ids.append(reinterpret_cast<const char*>(id.bytes.data()), id.bytes.size());
}

} // namespace oncekey
