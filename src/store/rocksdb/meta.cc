#include "store/rocksdb/meta.h"

#include "store/rocksdb/buckets.h"
#include "store/rocksdb/rocksdb_fault.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstring>
#include <utility>

namespace oncekey {
namespace {

constexpr std::string_view kMagic = "ONCEKEY";

Result<StoreMeta> decode_meta(std::string_view bytes, std::string_view where) {
  StoreMeta meta;
  std::uint64_t checksum;
  const std::size_t least = kMagic.size() + sizeof meta.format + sizeof checksum;
  if (bytes.size() < least || !bytes.starts_with(kMagic)) {
    return corrupt(fmt::format("the store at {} is damaged: its meta data is not oncekey's", where));
  }
  const std::string_view content = bytes.substr(0, bytes.size() - sizeof checksum);
  std::memcpy(&checksum, bytes.data() + content.size(), sizeof checksum);
  if (XXH3_64bits(content.data(), content.size()) != checksum) {
    return corrupt(fmt::format("the store at {} is damaged: its meta data fails its checksum", where));
  }
  std::memcpy(&meta.format, bytes.data() + kMagic.size(), sizeof meta.format);
  if (meta.format > kStoreFormat) {
    return Fault{
        FaultKind::newer_format,
        fmt::format("the store at {} has format version {}, and this version of oncekey reads up to {}: it was "
                    "made by a newer oncekey, run that one or a later one on it",
                    where, meta.format, kStoreFormat)};
  }
  const std::string_view secret = content.substr(kMagic.size() + sizeof meta.format);
  if (meta.format != kStoreFormat || secret.size() != meta.secret.size()) {
    return corrupt(fmt::format("the store at {} is damaged: its meta data has the wrong shape", where));
  }
  std::memcpy(meta.secret.data(), secret.data(), secret.size());
  return meta;
}

Result<StoreMeta> make_meta(rocksdb::DB& db) {
  StoreMeta meta;
  fill_random(meta.secret);
  rocksdb::WriteOptions durable;
  durable.sync = true;
  const std::string bytes = encode_meta(meta.format, meta.secret);
  const rocksdb::Status written = db.Put(durable, rocksdb::Slice(kMetaKey.data(), kMetaKey.size()), bytes);
  if (!written.ok()) return fault_of(written, "the store's meta data could not be written");
  return meta;
}

} // namespace

std::string encode_meta(std::uint32_t format, const Secret& secret) {
  std::string bytes(kMagic);
  const auto append = [&bytes](const void* from, std::size_t size) {
    const std::size_t at = bytes.size();
    bytes.resize(at + size);
    std::memcpy(bytes.data() + at, from, size);
  };
  append(&format, sizeof format);
  append(secret.data(), secret.size());
  const std::uint64_t checksum = XXH3_64bits(bytes.data(), bytes.size());
  append(&checksum, sizeof checksum);
  return bytes;
}

Result<StoreMeta> load_or_make_meta(rocksdb::DB& db, StoreAge age, std::string_view where) {
  std::string bytes;
  const rocksdb::Status read = db.Get({}, rocksdb::Slice(kMetaKey.data(), kMetaKey.size()), &bytes);
  if (read.IsNotFound()) {
    if (age == StoreAge::is_new) return make_meta(db);
    return corrupt(fmt::format("the store at {} is damaged: it has records but no meta data", where));
  }
  if (!read.ok()) return fault_of(read, "the store's meta data could not be read");
  Result<StoreMeta> meta = decode_meta(bytes, where);
  if (!meta) return meta;

  const rocksdb::Status clock = db.Get({}, rocksdb::Slice(kClockKey.data(), kClockKey.size()), &bytes);
  if (clock.IsNotFound()) return meta;
  if (!clock.ok()) return fault_of(clock, "the store's clock mark could not be read");
  Result<ClockMark> mark = decode_clock_mark(bytes);
  if (!mark) return std::move(mark).fault();
  meta->clock = *std::move(mark);
  return meta;
}

std::string job_key(std::uint64_t place, const RecordId& id) {
  std::string key(kJobPrefix);
  // Big-endian, so that the order of the keys is that of the places.
  for (int shift = 56; shift >= 0; shift -= 8) key.push_back(static_cast<char>(place >> shift & 0xff));
  const rocksdb::Slice bytes = key_slice(id);
  return key.append(bytes.data(), bytes.size());
}

std::optional<JobPlace> parse_job_key(std::string_view key) {
  JobPlace job;
  if (!key.starts_with(kJobPrefix) || key.size() != kJobPrefix.size() + 8 + job.id.bytes.size()) return std::nullopt;
  key.remove_prefix(kJobPrefix.size());
  for (const char byte : key.substr(0, 8)) job.place = job.place << 8 | static_cast<std::uint8_t>(byte);
  std::memcpy(job.id.bytes.data(), key.data() + 8, job.id.bytes.size());
  return job;
}

} // namespace oncekey
