// places: how many requests are under way, of one account and of all.
//
// A place is taken for as long as its object lives, and moves with the request when that goes on without its client.
#pragma once

#include "core/rate_keeper.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

namespace oncekey {

// By account. Remembers only accounts that have something under way.
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
  struct Shard {
    std::mutex mutex;
    std::unordered_map<RateBucketId, std::uint32_t> taken;
  };
  Shard& shard_of(const RateBucketId& account) { return shards_[account.bytes[31] % shards_.size()]; }
  void leave(const RateBucketId& account);

  std::array<Shard, 16> shards_; // enough that threads rarely meet on one lock
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
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<std::uint32_t>& count_;
};

} // namespace oncekey
