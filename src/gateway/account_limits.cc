#include "gateway/account_limits.h"

namespace oncekey {

void LocalRates::take(const RateBucketId& bucket, const Rate& rate, std::function<void(Result<Taken>)> done) {
  Taken taken;
  {
    const auto buckets = buckets_.of(bucket);
    const TokenBucket::Instant now = std::chrono::steady_clock::now();
    auto found = buckets->find(bucket);
    if (found == buckets->end()) {
      if (buckets->size() >= shard_max_) make_room(*buckets, now);
      found = buckets->emplace(bucket, Kept{{}, rate}).first;
    }
    found->second.rate = rate;
    taken = found->second.bucket.take(rate, now);
  }
  done(taken);
}

void LocalRates::give_back(const RateBucketId& bucket, const Rate& rate) {
  const auto buckets = buckets_.of(bucket);
  const auto found = buckets->find(bucket);
  if (found != buckets->end()) found->second.bucket.give_back(rate, std::chrono::steady_clock::now());
}

std::size_t LocalRates::size() const {
  std::size_t sum = 0;
  buckets_.each([&](const Buckets& buckets) { sum += buckets.size(); });
  return sum;
}

// A quarter at the least goes, so that a sender under ever new names does not make every request walk over all. The
// fullest go first: a bucket that a new name has just begun is nearly full, that of an account over its rate is empty,
// and must not be forgotten for their sake.
void LocalRates::make_room(Buckets& buckets, TokenBucket::Instant now) const {
  std::erase_if(buckets, [&](const auto& entry) { return entry.second.bucket.full(entry.second.rate, now); });
  const std::size_t keep = shard_max_ - shard_max_ / 4;
  if (buckets.size() <= keep) return;
  std::vector<std::pair<double, RateBucketId>> by_need;
  by_need.reserve(buckets.size());
  for (const auto& [id, kept] : buckets) by_need.emplace_back(kept.bucket.seconds_to_full(kept.rate, now), id);
  const auto last = by_need.begin() + static_cast<std::ptrdiff_t>(by_need.size() - keep);
  std::nth_element(by_need.begin(), last, by_need.end());
  for (auto it = by_need.begin(); it != last; ++it) buckets.erase(it->second);
}

std::optional<AccountPlaces::Place> AccountPlaces::enter(const RateBucketId& account, std::uint32_t most) {
  const auto taken = taken_.of(account);
  const auto found = taken->try_emplace(account, 0).first;
  if (found->second >= most) return std::nullopt;
  ++found->second;
  return Place(*this, account);
}

void AccountPlaces::leave(const RateBucketId& account) {
  const auto taken = taken_.of(account);
  const auto found = taken->find(account);
  if (found != taken->end() && --found->second == 0) taken->erase(found);
}

} // namespace oncekey
