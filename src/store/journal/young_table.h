// YoungTable: what the batches of one segment have changed, until the segment is sealed. A flat table: no pointer and
// no allocation for each key. Keys and values stay where they were encoded, in the payloads of their batches.
//
// Not for several threads at once.
#pragma once

#include "core/bucket.h"

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

// What a key belongs to. A key is in one family of a kind at a time.
enum class FamilyKind : std::uint8_t { store, records, jobs };
struct Family {
  FamilyKind kind = FamilyKind::store;
  BucketId bucket{}; // of records and jobs
  friend auto operator<=>(const Family&, const Family&) = default;
};

// Where in the payload of a batch an entry stands.
struct EntryPlace {
  std::uint32_t key = 0;
  std::uint32_t key_bytes = 0;
  std::uint32_t value = 0;
  std::uint32_t value_bytes = 0;
};

class YoungTable {
 public:
  struct Entry {
    Family family;
    EntryPlace place;
    std::uint32_t batch = 0; // counted in this table
    std::uint32_t tag = 0;   // of the key's hash
    bool erased = false;
  };

  YoungTable() = default;
  // With room for so many keys, so that it need not grow while callers wait.
  explicit YoungTable(std::size_t keys);

  // The entries that follow stand in this payload, which grows meanwhile and outlives the table's use.
  void begin_batch() { payloads_.emplace_back(); }
  std::string& payload() { return payloads_.back(); }

  // The key was put or erased by the last entry of the payload. Returns the family that the table had it in before, if
  // that is another one.
  void change(const Family& family, const EntryPlace& place, bool erased);

  // The newest entry of the key; null if this table has none.
  const Entry* find(FamilyKind kind, std::string_view key) const;
  std::string_view key_of(const Entry& entry) const { return part(entry, entry.place.key, entry.place.key_bytes); }
  std::string_view value_of(const Entry& entry) const {
    return part(entry, entry.place.value, entry.place.value_bytes);
  }

  // How many records it has that are not erased.
  std::size_t records() const { return records_; }
  // In no order, one for each key of a kind.
  const std::vector<Entry>& entries() const { return entries_; }
  // Keys that left these families for others of their kind.
  const std::vector<Entry>& left() const { return left_; }

 private:
  std::string_view part(const Entry& entry, std::uint32_t begin, std::uint32_t bytes) const {
    return std::string_view(payloads_[entry.batch]).substr(begin, bytes);
  }
  std::size_t slot_of(FamilyKind kind, std::string_view key, std::uint64_t hash) const;
  void grow();

  std::deque<std::string> payloads_;
  std::vector<Entry> entries_;
  std::vector<Entry> left_;
  std::size_t records_ = 0;
  std::vector<std::uint32_t> slots_; // number of an entry plus one, or 0; a power of two of them
};

} // namespace oncekey
