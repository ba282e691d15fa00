// Fences: the numbers that claims of a RocksDB store get, each larger than every one before.
//
// The database keeps a bound, under "fence": no number at or above it has been given. It is moved on by a block, in the
// batch of the claim that needs the first number of the block; after a crash the next number is the bound. A directory
// put back from an older copy has an older bound, and begins at the time instead (store/common/fences.h).
#pragma once

#include "core/codec_parts.h"
#include "store/common/fences.h"
#include "store/rocksdb/database.h"

#include <rocksdb/write_batch.h>

#include <algorithm>

namespace oncekey {

// One write of the bound for so many claims. What a restart leaves out of a block is never given.
inline constexpr std::uint64_t kFenceBlock = 4096;
inline constexpr std::string_view kFenceKey = "fence";

// Belongs to one thread.
class Fences {
 public:
  Status load(rocksdb::DB& db, Time now) {
    const Result<std::optional<std::string>> bytes =
        read_key(db, kFenceKey, "the store's counter of fences could not be read");
    if (!bytes) return bytes.fault();
    if (*bytes) {
      if ((*bytes)->size() != sizeof bound_)
        return corrupt("the store is damaged: its counter of fences does not have 8 bytes");
      std::memcpy(&bound_, (*bytes)->data(), sizeof bound_);
    }
    next_ = std::max(bound_, least_fence(now));
    return ok_status();
  }

  // The number that take() will give.
  std::uint64_t next() const { return next_; }
  // Gives it. `batch` is the one that holds the claim.
  rocksdb::Status take(rocksdb::WriteBatch& batch) {
    if (next_ >= bound_) {
      bound_ = next_ + kFenceBlock;
      std::string bytes;
      codec::field(bytes, bound_);
      if (rocksdb::Status added = batch.Put(slice_of(kFenceKey), bytes); !added.ok()) return added;
    }
    ++next_;
    return rocksdb::Status::OK();
  }
  // The batch that held the bound was not written: the next number writes it again.
  void batch_given_up() { bound_ = next_; }

 private:
  std::uint64_t next_ = 0;
  std::uint64_t bound_ = 0;
};

} // namespace oncekey
