#include "store/common/replay_cache.h"

namespace oncekey {
namespace {

// The strings and the bookkeeping around them; near enough for a bound.
constexpr std::size_t kEntryBytes = sizeof(Record) + 512;

bool worth_keeping(const Record& record) {
  return record.state == RecordState::completed && record.response && !record.response->omitted &&
         record.response->body.size() <= kReplayCacheBodyBytesMax;
}

} // namespace

std::shared_ptr<const Record> ReplayCache::find(const RecordId& id) {
  Shard& shard = shard_of(id);
  const std::lock_guard lock(shard.mutex);
  const auto found = shard.by_id.find(id);
  if (found == shard.by_id.end()) return nullptr;
  shard.entries.splice(shard.entries.begin(), shard.entries, found->second);
  return found->second->record;
}

void ReplayCache::insert(const RecordId& id, const Record& record) {
  if (!worth_keeping(record)) return;
  const std::size_t bytes = kEntryBytes + record.response->body.size() + record.response->headers.lines().size();
  auto kept = std::make_shared<const Record>(record);
  Shard& shard = shard_of(id);
  const std::lock_guard lock(shard.mutex);
  if (const auto old = shard.by_id.find(id); old != shard.by_id.end()) {
    // A key that expired and was executed anew: the newer record counts.
    shard.bytes -= old->second->bytes;
    shard.entries.erase(old->second);
    shard.by_id.erase(old);
  }
  shard.entries.push_front({id, std::move(kept), bytes});
  shard.by_id.emplace(id, shard.entries.begin());
  shard.bytes += bytes;
  while (shard.bytes > shard_bytes_max_) {
    shard.bytes -= shard.entries.back().bytes;
    shard.by_id.erase(shard.entries.back().id);
    shard.entries.pop_back();
  }
}

} // namespace oncekey
