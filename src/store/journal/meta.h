// meta: what an embedded store knows about itself.
//
// In files of its folder:
//   meta    "ONCEKEY" format:u32 id:16 bytes check:32 bytes checksum:u64   written once, when the store is made
//   secret  the hashing secret, of which `meta` has the check value (kept_secret.h): with a copy of the rest alone
//           accounts cannot be guessed
//
// Among the store's own entries:
//   "clock"            a ClockMark                                    about once a second while records are written
//   "fence"            a u64 that every fence given is below          once in a block of claims (fences.h)
//   "loss"             what the store has forgotten, in words         until an operator accepts the loss (witness.h)
//   "sealed"           how far the log has gone to RocksDB            with each segment (sorted_files.h)
//   "unsettled/" id    keys that are not settled                      (unsettled.h)
//   "job/" place id    jobs that are not over                         (journal_jobs.h)
#pragma once

#include "base/crypto.h"
#include "store/common/kept_secret.h"
#include "store/journal/store_clock.h"

#include <oncekey/record.h>
#include <oncekey/result.h>

namespace oncekey {

// The version of the layout as a whole (families, keys); single records carry their own.
inline constexpr std::uint32_t kStoreFormat = 2;
inline constexpr std::string_view kMetaFile = "meta";
inline constexpr std::string_view kClockKey = "clock";
inline constexpr std::string_view kLossKey = "loss";
// A file of the folder: an operator's note, until a gateway has taken it up.
inline constexpr std::string_view kLossAcceptedFile = "accept-loss";
inline constexpr std::string_view kSecretFile = "secret";

using StoreId = std::array<std::uint8_t, 16>;

struct StoreMeta {
  std::uint32_t format = kStoreFormat;
  StoreId id{}; // random, made with the store
  HashBytes secret_check{};
  Secret secret{};
  bool made_now = false;
  // A number of the store's own, in the checksums of its log.
  std::uint64_t salt() const {
    std::uint64_t salt = 0;
    std::memcpy(&salt, id.data(), sizeof salt);
    return salt;
  }
};

std::string encode_meta(std::uint32_t format, const StoreId& id, const HashBytes& secret_check);

// Reads both files, or makes them, durably, if the store is new. A store that has content and no meta data is damaged
// and refused. So is one whose secret is missing or another: with a new secret every known key would be unknown.
enum class StoreAge { is_new, has_content };
Result<StoreMeta> load_or_make_meta(StoreAge age, const std::string& folder, const Sealer* sealer);

// The file `meta` alone.
Result<StoreMeta> read_meta(const std::string& folder);

// Whether this version reads the store in that folder, which another process may have open. Fine if there is none.
Status check_journal_format(const std::string& folder);

// The secret alone, of a store that is not opened: nothing if there is none.
Result<std::optional<Secret>> read_secret(const std::string& folder, const Sealer* sealer);

} // namespace oncekey
