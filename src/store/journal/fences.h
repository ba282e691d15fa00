// Fences: the numbers that claims of an embedded store get, each larger than every one before.
//
// The store keeps a bound, under "fence": no number at or above it has been given. It is moved on by a block, in the
// step of the claim that needs the first number of the block; after a crash the next number is the bound. A folder
// put back from an older copy has an older bound, and begins at the time instead (store/common/fences.h).
#pragma once

#include "core/codec_parts.h"
#include "store/common/fences.h"
#include "store/journal/entries.h"

#include <algorithm>

namespace oncekey {

// One write of the bound for so many claims. What a restart leaves out of a block is never given.
inline constexpr std::uint64_t kFenceBlock = 4096;
inline constexpr std::string_view kFenceKey = "fence";

// Needs the journal's lock.
class Fences {
 public:
  // Before the first number.
  Status load(const Entries& entries, Time now) {
    const Result<std::optional<std::string>> bytes = entries.read(kFenceKey);
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
  // Gives it. The step under way holds the claim, and has room for kFenceEntries and kFenceBytes more.
  void take(SegmentedLog& journal) {
    if (next_ >= bound_) {
      bound_ = next_ + kFenceBlock;
      journal.put_encoded(kStoreFamily, kFenceKey, [&](std::string& out) { codec::field(out, bound_); });
    }
    ++next_;
  }

 private:
  std::uint64_t next_ = 0;
  std::uint64_t bound_ = 0;
};
inline constexpr std::size_t kFenceEntries = 1;
inline constexpr std::size_t kFenceBytes = kFenceKey.size() + sizeof(std::uint64_t);

} // namespace oncekey
