// LocalRates: the buckets of this process, where no store shares them.
//
// Memory is bounded. A bucket that is full again need not be remembered; when there are too many that are not, the
// fullest are forgotten, and their accounts begin anew: a limiter that loses count lets requests pass.
#pragma once

#include "core/rate_keeper.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <mutex>
#include <unordered_map>

namespace oncekey {

class LocalRates final : public RateKeeper {
 public:
  // Some hundred bytes each: a few megabytes for accounts that all send at the same time.
  static constexpr std::size_t kBucketsMax = std::size_t{1} << 16;

  explicit LocalRates(std::size_t buckets_max = kBucketsMax) : shard_max_(std::max(buckets_max / kShards, kLeast)) {}

  void take(const RateBucketId& bucket, const Rate& rate, std::function<void(Result<Taken>)> done) override;
  void give_back(const RateBucketId& bucket, const Rate& rate) override;

  std::size_t size() const;

 private:
  static constexpr std::size_t kShards = 16; // enough that threads rarely meet on one lock
  static constexpr std::size_t kLeast = 4;

  struct Kept {
    TokenBucket bucket;
    Rate rate;
  };
  struct Shard {
    mutable std::mutex mutex;
    std::unordered_map<RateBucketId, Kept> buckets;
  };
  Shard& shard_of(const RateBucketId& id) { return shards_[id.bytes[31] % kShards]; }
  void make_room(Shard& shard, TokenBucket::Instant now) const;

  const std::size_t shard_max_;
  std::array<Shard, kShards> shards_;
};

} // namespace oncekey
