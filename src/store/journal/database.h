// database: how RocksDB is asked here: its statuses as our faults, our keys as its slices, reading and scanning.
#pragma once

#include <oncekey/record.h>
#include <oncekey/result.h>

#include <rocksdb/db.h>
#include <rocksdb/iterator.h>

#include <functional>

namespace oncekey {

// Damage is `corrupt`, all else `unavailable`. `what` says in words which step failed.
inline Fault fault_of(const rocksdb::Status& status, std::string_view what) {
  const FaultKind kind = status.IsCorruption() ? FaultKind::corrupt : FaultKind::unavailable;
  return Fault{kind, std::string(what) + ": " + status.ToString()};
}
inline Status status_of(const rocksdb::Status& status, std::string_view what) {
  return status.ok() ? ok_status() : Status(fault_of(status, what));
}

// The write is synced before it is answered.
inline rocksdb::WriteOptions durably() {
  rocksdb::WriteOptions options;
  options.sync = true;
  return options;
}
// For iterators. They look at many records, which would push out of the cache what replays need; and they must see the
// keys that the filters do not have (FilteredKeys in tuning.h).
inline rocksdb::ReadOptions passing_by() {
  rocksdb::ReadOptions options;
  options.fill_cache = false;
  options.total_order_seek = true;
  return options;
}

inline rocksdb::Slice slice_of(std::string_view text) { return {text.data(), text.size()}; }
inline rocksdb::Slice key_slice(const RecordId& id) {
  return {static_cast<const char*>(static_cast<const void*>(id.bytes.data())), id.bytes.size()};
}

// The bytes under a key of the default family; nothing if there is no such key.
inline Result<std::optional<std::string>> read_key(rocksdb::DB& db, std::string_view key,
                                                   std::string_view what_failed) {
  std::string bytes;
  const rocksdb::Status read = db.Get({}, slice_of(key), &bytes);
  if (read.IsNotFound()) return std::optional<std::string>();
  if (!read.ok()) return fault_of(read, what_failed);
  return std::optional<std::string>(std::move(bytes));
}

// Keys that end in an id.
inline std::string key_with_id(std::string_view prefix, const RecordId& id) {
  std::string key(prefix);
  const rocksdb::Slice bytes = key_slice(id);
  return key.append(bytes.data(), bytes.size());
}
// Nothing if what follows the prefix does not have the length of an id.
inline std::optional<RecordId> id_in_key(std::string_view key, std::size_t prefix_bytes) {
  RecordId id;
  if (key.size() != prefix_bytes + id.bytes.size()) return std::nullopt;
  std::memcpy(id.bytes.data(), key.data() + prefix_bytes, id.bytes.size());
  return id;
}

// Numbers whose order is that of their bytes.
inline void append_big_endian(std::string& out, std::uint64_t number) {
  for (int shift = 56; shift >= 0; shift -= 8) out.push_back(static_cast<char>(number >> shift & 0xff));
}
inline std::uint64_t big_endian_in(std::string_view bytes) {
  std::uint64_t number = 0;
  for (const char byte : bytes.substr(0, 8)) number = number << 8 | static_cast<std::uint8_t>(byte);
  return number;
}

// Called with a key and its value; false, or a fault, ends the look.
using Visit = std::function<Result<bool>(std::string_view key, std::string_view value)>;
// Visits what begins with the prefix, in order. False if the visitor has ended it.
inline Result<bool> scan(rocksdb::DB& db, rocksdb::ColumnFamilyHandle* family, std::string_view prefix,
                         std::string_view what_failed, const Visit& visit) {
  const std::unique_ptr<rocksdb::Iterator> at(db.NewIterator(passing_by(), family));
  for (at->Seek(slice_of(prefix)); at->Valid() && at->key().starts_with(slice_of(prefix)); at->Next()) {
    Result<bool> more = visit(at->key().ToStringView(), at->value().ToStringView());
    if (!more || !*more) return more;
  }
  if (!at->status().ok()) return fault_of(at->status(), what_failed);
  return true;
}

} // namespace oncekey
