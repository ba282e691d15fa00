#include "gateway/storms.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace oncekey {

void Storms::retried(const RecordId& id, std::size_t route, Instant now) {
  Shard& shard = shard_of(id);
  const std::lock_guard lock(shard.mutex);
  if (now - shard.began >= kStretch) {
    const bool just_ended = now - shard.began < 2 * kStretch;
    shard.before.clear();
    if (just_ended) shard.before.swap(shard.now);
    shard.now.clear();
    shard.began = now;
  }
  const auto found = std::find_if(shard.now.begin(), shard.now.end(), [&](const HotKey& hot) { return hot.id == id; });
  if (found != shard.now.end()) {
    ++found->retries;
  } else if (shard.now.size() < kShardKeys) {
    shard.now.push_back({id, route, 1});
  } else {
    const auto coldest = std::min_element(shard.now.begin(), shard.now.end(),
                                          [](const HotKey& a, const HotKey& b) { return a.retries < b.retries; });
    *coldest = {id, route, coldest->retries + 1};
  }
}

std::vector<Storms::HotKey> Storms::hottest(Instant now) const {
  std::unordered_map<RecordId, HotKey> keys;
  const auto add = [&](const std::vector<HotKey>& counted) {
    for (const HotKey& hot : counted) {
      HotKey& best = keys.try_emplace(hot.id, hot).first->second;
      best.retries = std::max(best.retries, hot.retries);
    }
  };
  for (const Shard& shard : shards_) {
    const std::lock_guard lock(shard.mutex);
    if (now - shard.began < 2 * kStretch) add(shard.now);
    if (now - shard.began < kStretch) add(shard.before);
  }
  std::vector<HotKey> all;
  all.reserve(keys.size());
  for (const auto& [id, hot] : keys) all.push_back(hot);
  std::sort(all.begin(), all.end(), [](const HotKey& a, const HotKey& b) {
    return a.retries != b.retries ? a.retries > b.retries : a.id < b.id;
  });
  return all;
}

} // namespace oncekey
