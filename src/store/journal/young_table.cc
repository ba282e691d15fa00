#include "store/journal/young_table.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>

namespace oncekey {
namespace {

constexpr std::size_t kFirstSlots = 1024;

bool is_record(const YoungTable::Entry& entry) { return entry.family.kind == FamilyKind::records && !entry.erased; }

std::uint64_t hash_of(std::string_view key) { return XXH3_64bits(key.data(), key.size()); }
std::uint32_t tag_of(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32); }

} // namespace

YoungTable::YoungTable(std::size_t keys) : slots_(std::bit_ceil(std::max(kFirstSlots, 2 * keys)), 0) {
  entries_.reserve(keys);
}

void YoungTable::change(const Family& family, const EntryPlace& place, bool erased) {
  if (2 * entries_.size() >= slots_.size()) grow();
  Entry changed{family, place, static_cast<std::uint32_t>(payloads_.size() - 1), 0, erased};
  const std::uint64_t hash = hash_of(key_of(changed));
  changed.tag = tag_of(hash);
  std::uint32_t& slot = slots_[slot_of(family.kind, key_of(changed), hash)];
  if (slot == 0) {
    entries_.push_back(changed);
    records_ += is_record(changed) ? 1 : 0;
    slot = static_cast<std::uint32_t>(entries_.size());
    return;
  }
  Entry& known = entries_[slot - 1];
  if (known.family != family) {
    // The family that it is erased from is not the one that it is in.
    if (erased && !known.erased) return left_.push_back(changed);
    left_.push_back(known);
    left_.back().erased = true;
  }
  records_ += is_record(changed) ? 1 : 0;
  records_ -= is_record(known) ? 1 : 0;
  known = changed;
}

const YoungTable::Entry* YoungTable::find(FamilyKind kind, std::string_view key) const {
  if (slots_.empty()) return nullptr;
  const std::uint32_t entry = slots_[slot_of(kind, key, hash_of(key))];
  return entry == 0 ? nullptr : &entries_[entry - 1];
}

// That of the key, or the empty one it would get.
std::size_t YoungTable::slot_of(FamilyKind kind, std::string_view key, std::uint64_t hash) const {
  const std::size_t last = slots_.size() - 1;
  std::size_t slot = hash & last;
  for (; slots_[slot] != 0; slot = (slot + 1) & last) {
    const Entry& entry = entries_[slots_[slot] - 1];
    if (entry.tag == tag_of(hash) && entry.family.kind == kind && key_of(entry) == key) break;
  }
  return slot;
}

void YoungTable::grow() {
  slots_.assign(std::max(kFirstSlots, 2 * slots_.size()), 0);
  for (std::size_t at = 0; at < entries_.size(); ++at) {
    const std::string_view key = key_of(entries_[at]);
    slots_[slot_of(entries_[at].family.kind, key, hash_of(key))] = static_cast<std::uint32_t>(at + 1);
  }
}

} // namespace oncekey
