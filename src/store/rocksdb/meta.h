// meta: what a RocksDB store knows about itself, kept in the default column family beside the buckets.
//
//   "meta"   "ONCEKEY" format:u32 secret:32 bytes checksum:u64     written once, when the store is made
//   "clock"  a ClockMark                                         about once a second while records are written
//   "fence"  a u64 that every fence given is below (fences.h)       once in a block of claims
//   "job/" place:u64 (big-endian) id:32 bytes, with no value        for every job until it is completed or dead
#pragma once

#include "base/crypto.h"
#include "store/rocksdb/store_clock.h"

#include <oncekey/record.h>
#include <oncekey/result.h>

#include <rocksdb/db.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace oncekey {

// The version of the layout as a whole (families, keys); single records carry their own.
inline constexpr std::uint32_t kStoreFormat = 1;
inline constexpr std::string_view kMetaKey = "meta";
inline constexpr std::string_view kClockKey = "clock";
inline constexpr std::string_view kJobPrefix = "job/";

struct StoreMeta {
  std::uint32_t format = kStoreFormat;
  Secret secret{};
  std::optional<ClockMark> clock;
};

std::string encode_meta(std::uint32_t format, const Secret& secret);

// Reads the meta data, or makes it, durably, if the store is empty. `where` names the store in messages. A store that
// has buckets and no meta data is damaged and refused: a new secret would make every known key unknown.
enum class StoreAge { is_new, has_buckets };
Result<StoreMeta> load_or_make_meta(rocksdb::DB& db, StoreAge age, std::string_view where);

std::string job_key(std::uint64_t place, const RecordId& id);
struct JobPlace {
  std::uint64_t place = 0;
  RecordId id;
};
// Nothing for other keys.
std::optional<JobPlace> parse_job_key(std::string_view key);

} // namespace oncekey
