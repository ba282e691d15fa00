// KnownIds: which ids a bucket of records may have. Of nearly every other id it says that it is new.
//
// A first claim asks every live bucket in vain. RocksDB has a filter in each file, and to ask some twenty files costs
// more than the rest of the claim; this asks a few places in memory. "May have" is wrong for about one id in a
// thousand, which costs a look. "Has not" is never wrong: an id is noted before the file with it can be read, and it is
// never forgotten.
//
// Each sealed segment writes the ids that it brings to a bucket beside them, in the same file:
//
//   key    "sealed ids" sequence:u64 (big-endian) of the segment's last batch   18 bytes, where a record's key has 32
//   value  the first eight bytes of each id
//
// From these the next process makes it anew. Until it has read all of them it may have every id.
//
// It is a Bloom filter of blocks of one cache line, with one bit in each of a block's eight words: 16 bits an id. It
// grows by layers, each with room for twice as many ids as the one before, so that nothing is copied.
//
// Any thread may ask while another one notes.
#pragma once

#include "store/journal/database.h"

#include <oncekey/record.h>
#include <oncekey/result.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>

namespace oncekey {

inline constexpr std::string_view kSealedIdsPrefix = "sealed ids";
// Of an id, in the value.
inline constexpr std::size_t kIdFrontBytes = sizeof(std::uint64_t);

inline std::string sealed_ids_key(std::uint64_t sequence) {
  std::string key(kSealedIdsPrefix);
  append_big_endian(key, sequence);
  return key;
}
inline bool is_sealed_ids_key(std::string_view key) {
  return key.size() == kSealedIdsPrefix.size() + sizeof(std::uint64_t) && key.starts_with(kSealedIdsPrefix);
}
// A copy of an entry's value; nothing if it is another entry.
inline std::string sealed_ids_in(std::string_view key, std::string_view value) {
  return is_sealed_ids_key(key) ? std::string(value) : std::string();
}
// What counts of a record's key, which is its id.
inline std::string_view front_of_id(std::string_view key) { return key.substr(0, kIdFrontBytes); }

class KnownIds {
 public:
  // Whether all ids of the bucket have been noted.
  enum class Complete { no, yes };
  explicit KnownIds(Complete complete) : complete_(complete == Complete::yes) {}

  bool may_have(std::string_view key) const {
    if (!complete_.load(std::memory_order_acquire)) return true;
    const std::uint64_t hash = hash_of(front_of_id(key));
    for (std::size_t i = layers_.load(std::memory_order_acquire); i > 0; --i) {
      if (made_[i - 1]->has(hash)) return true;
    }
    return false;
  }

  // Fronts of ids, one behind the other.
  void note(std::string_view fronts) {
    const std::lock_guard lock(noting_);
    for (; fronts.size() >= kIdFrontBytes; fronts.remove_prefix(kIdFrontBytes)) {
      if (room_ == 0) add_layer();
      --room_;
      made_[layers_.load(std::memory_order_relaxed) - 1]->add(hash_of(front_of_id(fronts)));
    }
  }

  // Notes what the sealed segments have written to the bucket. From then on it is complete, unless it was told to stop.
  Status load(rocksdb::DB& db, rocksdb::ColumnFamilyHandle* family, const std::stop_token& stop) {
    const Result<bool> all = scan(db, family, kSealedIdsPrefix, "the ids of a bucket could not be read",
                                  [&](std::string_view key, std::string_view value) -> Result<bool> {
                                    note(sealed_ids_in(key, value));
                                    return !stop.stop_requested();
                                  });
    if (!all) return all.fault();
    if (*all) complete_.store(true, std::memory_order_release);
    return ok_status();
  }

  std::size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  // One bit in each word: at 32 ids a block, 0.4 of the bits are set, and 0.4^8 of other ids meet eight of them.
  struct alignas(64) Block {
    std::array<std::atomic<std::uint64_t>, 8> words{};
  };
  static constexpr std::size_t kIdsOfBlock = 32;
  static constexpr std::size_t kFirstLayerIds = std::size_t{1} << 14;
  static constexpr std::size_t kLayersMax = 32;

  struct Layer {
    explicit Layer(std::size_t count) : block_count(count), blocks(std::make_unique<Block[]>(count)) {}
    Block& block_of(std::uint64_t hash) const { return blocks[(hash >> 32) * block_count >> 32]; }
    bool has(std::uint64_t hash) const {
      const Block& block = block_of(hash);
      for (std::size_t i = 0; i < block.words.size(); ++i) {
        if ((block.words[i].load(std::memory_order_relaxed) & bit_of(hash, i)) == 0) return false;
      }
      return true;
    }
    void add(std::uint64_t hash) {
      Block& block = block_of(hash);
      for (std::size_t i = 0; i < block.words.size(); ++i)
        block.words[i].fetch_or(bit_of(hash, i), std::memory_order_relaxed);
    }
    const std::uint64_t block_count;
    const std::unique_ptr<Block[]> blocks;
  };

  // Another six bits of the hash's lower half for each word: the upper ones of a product with an odd number.
  static std::uint64_t bit_of(std::uint64_t hash, std::size_t word) {
    static constexpr std::array<std::uint32_t, 8> kOdd{0x47b6137b, 0x44974d91, 0x8824ad5b, 0xa2b7289d,
                                                       0x705495c7, 0x2df1424b, 0x9efc4947, 0x5c6bfb31};
    return std::uint64_t{1} << (static_cast<std::uint32_t>(hash) * kOdd[word] >> 26);
  }
  // Ids are hashes already; those of tests are not.
  static std::uint64_t hash_of(std::string_view front) {
    std::uint64_t hash = 0;
    std::memcpy(&hash, front.data(), front.size());
    hash = (hash ^ hash >> 32) * 0x9e3779b97f4a7c15;
    hash = (hash ^ hash >> 29) * 0xbf58476d1ce4e5b9;
    return hash ^ hash >> 32;
  }
  void add_layer() {
    const std::size_t count = layers_.load(std::memory_order_relaxed);
    ONCEKEY_CHECK(count < kLayersMax, "so many ids do not fit on a disk");
    room_ = kFirstLayerIds << count;
    made_[count] = std::make_unique<Layer>(room_ / kIdsOfBlock);
    bytes_.fetch_add(room_ / kIdsOfBlock * sizeof(Block), std::memory_order_relaxed);
    layers_.store(count + 1, std::memory_order_release);
  }

  std::atomic<bool> complete_;
  std::atomic<std::size_t> layers_ = 0;
  std::array<std::unique_ptr<Layer>, kLayersMax> made_; // those below `layers_` stay as they are
  std::atomic<std::size_t> bytes_ = 0;
  std::mutex noting_;    // over the next, and the making of layers
  std::size_t room_ = 0; // of the newest layer
};

} // namespace oncekey
