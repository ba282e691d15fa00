// account_limits: what the accounts are held to, counted in this process: rates, and requests under way.
//
// A place is taken for as long as its object lives, and moves with the request when that goes on without its client.
#pragma once

#include "core/rate_keeper.h"
#include "gateway/sharded.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <unordered_map>

namespace oncekey {

// The buckets of this process, where no store shares them.
//
// Memory is bounded. A bucket that is full again need not be remembered; when there are too many that are not, the
// fullest are forgotten, and their accounts begin anew: a limiter that loses count lets requests pass.
class LocalRates final : public RateKeeper {
 public:
  // Some hundred bytes each: a few megabytes for accounts that all send at the same time.
  static constexpr std::size_t kBucketsMax = std::size_t{1} << 16;

  explicit LocalRates(std::size_t buckets_max = kBucketsMax) : shard_max_(std::max(buckets_max / kShards, kLeast)) {}

  void take(const RateBucketId& bucket, const Rate& rate, std::function<void(Result<Taken>)> done) override;
  void give_back(const RateBucketId& bucket, const Rate& rate) override;

  std::size_t size() const;

 private:
  static constexpr std::size_t kShards = 16;
  static constexpr std::size_t kLeast = 4;

  struct Kept {
    TokenBucket bucket;
    Rate rate;
  };
  using Buckets = std::unordered_map<RateBucketId, Kept>;
  void make_room(Buckets& buckets, TokenBucket::Instant now) const;

  const std::size_t shard_max_;
  Sharded<Buckets, kShards> buckets_;
};

// How many requests are under way, by account. Remembers only accounts that have something under way.
class AccountPlaces {
 public:
  class Place {
   public:
    Place(Place&& other) noexcept : owner_(std::exchange(other.owner_, nullptr)), account_(other.account_) {}
    Place& operator=(Place&&) = delete;
    ~Place() {
      if (owner_ != nullptr) owner_->leave(account_);
    }

   private:
    friend class AccountPlaces;
    Place(AccountPlaces& owner, const RateBucketId& account) : owner_(&owner), account_(account) {}
    AccountPlaces* owner_;
    RateBucketId account_;
  };

  // Nothing when `most` are taken.
  std::optional<Place> enter(const RateBucketId& account, std::uint32_t most);

 private:
  void leave(const RateBucketId& account);

  Sharded<std::unordered_map<RateBucketId, std::uint32_t>> taken_;
};

// A number of places that is the same for all.
class Places {
 public:
  class Place {
   public:
    Place(Place&& other) noexcept : owner_(std::exchange(other.owner_, nullptr)) {}
    Place& operator=(Place&&) = delete;
    ~Place() {
      if (owner_ != nullptr) owner_->taken_.fetch_sub(1, std::memory_order_relaxed);
    }

   private:
    friend class Places;
    explicit Place(Places& owner) : owner_(&owner) {}
    Places* owner_;
  };

  std::optional<Place> enter(std::uint32_t most) {
    if (taken_.fetch_add(1, std::memory_order_relaxed) < most) return Place(*this);
    taken_.fetch_sub(1, std::memory_order_relaxed);
    return std::nullopt;
  }
  std::uint32_t taken() const { return taken_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint32_t> taken_{0};
};

// Something under way for as long as this lives.
class Counted {
 public:
  explicit Counted(std::atomic<std::uint32_t>& count) : count_(count) { count_.fetch_add(1); }
  ~Counted() { count_.fetch_sub(1); }
  Counted& operator=(Counted&&) = delete;

 private:
  std::atomic<std::uint32_t>& count_;
};

} // namespace oncekey
