#include "gateway/key_activity.h"

#include <algorithm>
#include <span>

namespace oncekey {

// Ids are hashes: any bytes of them are as good as random. The shard goes by another one.
std::size_t KeyActivity::row_of(const RecordId& id) {
  const std::size_t rows = kShardKeys / kWays;
  return kWays * ((id.bytes[8] | static_cast<std::size_t>(id.bytes[9]) << 8) % rows);
}

void KeyActivity::saw(const RecordId& id, Kind kind, WallTime now) {
  const auto table = tables_.of(id);
  if (table->empty()) table->resize(kShardKeys);
  const std::span<Entry> row(table->data() + row_of(id), kWays);
  auto entry = std::find_if(row.begin(), row.end(), [&](const Entry& each) { return each.id == id; });
  if (entry == row.end()) {
    entry = std::min_element(row.begin(), row.end(), [](const Entry& a, const Entry& b) { return a.last < b.last; });
    *entry = Entry{id, {}, now};
    entry->seen.first = now;
  }
  const auto index = static_cast<std::size_t>(kind);
  ++entry->seen.counts[index];
  entry->seen.last[index] = now;
  entry->last = now;
}

std::optional<KeyActivity::Seen> KeyActivity::find(const RecordId& id) const {
  const auto table = tables_.of(id);
  if (table->empty()) return std::nullopt;
  const std::span<const Entry> row(table->data() + row_of(id), kWays);
  const auto entry = std::find_if(row.begin(), row.end(), [&](const Entry& each) { return each.id == id; });
  if (entry == row.end() || entry->last == WallTime{}) return std::nullopt;
  return entry->seen;
}

} // namespace oncekey
