// meta: what a RocksDB store knows about itself, kept in the default column family beside the buckets.
//
// The hashing secret is not in the database but in the file `secret` of its folder, of which the database has the check
// value (kept_secret.h): with a copy of the database alone, or of its files in a backup, accounts cannot be guessed.
//
//   "meta"   "ONCEKEY" format:u32 id:16 bytes check:32 bytes checksum:u64     written once, when the store is made
//   "clock"  a ClockMark                                         about once a second while records are written
//   "fence"  a u64 that every fence given is below (fences.h)       once in a block of claims
//   "loss"   what the store has forgotten, in words              until an operator accepts the loss (witness.h)
//   "noted", "unsettled/" id                                        keys that are not settled (unsettled.h)
//   "job/" place id                                                 jobs that are not over (rocksdb_jobs.h)
#pragma once

#include "base/crypto.h"
#include "store/common/kept_secret.h"
#include "store/rocksdb/store_clock.h"

#include <oncekey/record.h>
#include <oncekey/result.h>

#include <rocksdb/db.h>

namespace oncekey {

// The version of the layout as a whole (families, keys); single records carry their own.
inline constexpr std::uint32_t kStoreFormat = 1;
inline constexpr std::string_view kMetaKey = "meta";
inline constexpr std::string_view kClockKey = "clock";
inline constexpr std::string_view kLossKey = "loss";
inline constexpr std::string_view kSecretFile = "secret";

using StoreId = std::array<std::uint8_t, 16>;

struct StoreMeta {
  std::uint32_t format = kStoreFormat;
  StoreId id{}; // random, made with the store
  HashBytes secret_check{};
  Secret secret{};
  bool made_now = false;
  std::optional<ClockMark> clock;
  std::optional<std::string> loss;
};

std::string encode_meta(std::uint32_t format, const StoreId& id, const HashBytes& secret_check);

// Reads the meta data and the secret, or makes both, durably, if the store is empty. `folder` is the store's. A store
// that has buckets and no meta data is damaged and refused. So is one whose secret is missing or another: with a new
// secret every known key would be unknown.
enum class StoreAge { is_new, has_buckets };
Result<StoreMeta> load_or_make_meta(rocksdb::DB& db, StoreAge age, const std::string& folder, const Sealer* sealer);

// The secret alone, of a store that is not opened: nothing if there is none.
Result<std::optional<Secret>> read_secret(const std::string& folder, const Sealer* sealer);

} // namespace oncekey
