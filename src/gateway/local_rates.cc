#include "gateway/local_rates.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

namespace oncekey {

void LocalRates::take(const RateBucketId& bucket, const Rate& rate, std::function<void(Result<Taken>)> done) {
  Taken taken;
  {
    Shard& shard = shard_of(bucket);
    const std::lock_guard lock(shard.mutex);
    const TokenBucket::Instant now = std::chrono::steady_clock::now();
    auto found = shard.buckets.find(bucket);
    if (found == shard.buckets.end()) {
      if (shard.buckets.size() >= shard_max_) make_room(shard, now);
      found = shard.buckets.emplace(bucket, Kept{{}, rate}).first;
    }
    found->second.rate = rate;
    taken = found->second.bucket.take(rate, now);
  }
  done(taken);
}

void LocalRates::give_back(const RateBucketId& bucket, const Rate& rate) {
  Shard& shard = shard_of(bucket);
  const std::lock_guard lock(shard.mutex);
  const auto found = shard.buckets.find(bucket);
  if (found != shard.buckets.end()) found->second.bucket.give_back(rate, std::chrono::steady_clock::now());
}

std::size_t LocalRates::size() const {
  std::size_t sum = 0;
  for (const Shard& shard : shards_) {
    const std::lock_guard lock(shard.mutex);
    sum += shard.buckets.size();
  }
  return sum;
}

// A quarter at the least goes, so that a sender under ever new names does not make every request walk over all. The
// fullest go first: a bucket that a new name has just begun is nearly full, that of an account over its rate is empty,
// and must not be forgotten for their sake.
void LocalRates::make_room(Shard& shard, TokenBucket::Instant now) const {
  std::erase_if(shard.buckets, [&](const auto& entry) { return entry.second.bucket.full(entry.second.rate, now); });
  const std::size_t keep = shard_max_ - shard_max_ / 4;
  if (shard.buckets.size() <= keep) return;
  std::vector<std::pair<double, RateBucketId>> by_need;
  by_need.reserve(shard.buckets.size());
  for (const auto& [id, kept] : shard.buckets) by_need.emplace_back(kept.bucket.seconds_to_full(kept.rate, now), id);
  const auto last = by_need.begin() + static_cast<std::ptrdiff_t>(by_need.size() - keep);
  std::nth_element(by_need.begin(), last, by_need.end());
  for (auto it = by_need.begin(); it != last; ++it) shard.buckets.erase(it->second);
}

} // namespace oncekey
