#include "store/journal/young_table.h"

#include <xxhash.h>

namespace oncekey {
namespace {

constexpr std::size_t kFirstSlots = 1024;

} // namespace

void YoungTable::change(const Family& family, const EntryPlace& place, bool erased) {
  if (2 * entries_.size() >= slots_.size()) grow();
  const Entry changed{family, place, static_cast<std::uint32_t>(payloads_.size() - 1), erased};
  std::uint32_t& slot = slots_[slot_of(family.kind, key_of(changed))];
  if (slot == 0) {
    entries_.push_back(changed);
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
  known = changed;
}

const YoungTable::Entry* YoungTable::find(FamilyKind kind, std::string_view key) const {
  if (slots_.empty()) return nullptr;
  const std::uint32_t entry = slots_[slot_of(kind, key)];
  return entry == 0 ? nullptr : &entries_[entry - 1];
}

// That of the key, or the empty one it would get.
std::size_t YoungTable::slot_of(FamilyKind kind, std::string_view key) const {
  const std::size_t last = slots_.size() - 1;
  std::size_t slot = XXH3_64bits(key.data(), key.size()) & last;
  for (; slots_[slot] != 0; slot = (slot + 1) & last) {
    const Entry& entry = entries_[slots_[slot] - 1];
    if (entry.family.kind == kind && key_of(entry) == key) break;
  }
  return slot;
}

void YoungTable::grow() {
  slots_.assign(std::max(kFirstSlots, 2 * slots_.size()), 0);
  for (std::size_t at = 0; at < entries_.size(); ++at) {
    slots_[slot_of(entries_[at].family.kind, key_of(entries_[at]))] = static_cast<std::uint32_t>(at + 1);
  }
}

} // namespace oncekey
