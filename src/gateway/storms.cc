#include "gateway/storms.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

namespace oncekey {
namespace {

// Ids are hashes: their first bytes tell nearly all of them apart, without a call for each.
std::uint64_t beginning_of(const RecordId& id) {
  std::uint64_t beginning = 0;
  std::memcpy(&beginning, id.bytes.data(), sizeof beginning);
  return beginning;
}

} // namespace

void Storms::retried(const RecordId& id, std::size_t route, Instant now) {
  const auto counts = counts_.of(id);
  if (now - counts->began >= kStretch) {
    const bool just_ended = now - counts->began < 2 * kStretch;
    counts->before.clear();
    if (just_ended) counts->before.swap(counts->now);
    counts->now.clear();
    counts->began = now;
  }
  const std::uint64_t beginning = beginning_of(id);
  const auto found = std::find_if(counts->now.begin(), counts->now.end(),
                                  [&](const HotKey& hot) { return beginning_of(hot.id) == beginning && hot.id == id; });
  if (found != counts->now.end()) {
    ++found->retries;
  } else if (counts->now.size() < kShardKeys) {
    counts->now.push_back({id, route, 1});
  } else {
    const auto coldest = std::min_element(counts->now.begin(), counts->now.end(),
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
  counts_.each([&](const Counts& counts) {
    if (now - counts.began < 2 * kStretch) add(counts.now);
    if (now - counts.began < kStretch) add(counts.before);
  });
  std::vector<HotKey> all;
  all.reserve(keys.size());
  for (const auto& [id, hot] : keys) all.push_back(hot);
  std::sort(all.begin(), all.end(), [](const HotKey& a, const HotKey& b) {
    return a.retries != b.retries ? a.retries > b.retries : a.id < b.id;
  });
  return all;
}

} // namespace oncekey
