// StoreRoom: whether the store has room for one more record.
//
// A store that grows until its disk is full cannot write down the answers of what it has begun. So new claims stop
// before that: at limits.max_store_bytes, or when less than a reserve is free on the disk. What was begun still ends.
// Each claim sets bytes aside for an ending without a body. A body is kept while it fits, and streams through unkept
// when it does not.
//
// How full the store is gets measured about once a second; in between, what was written since is counted along, so
// that the question before each claim costs a few loads.
#pragma once

#include "config/config.h"

#include <atomic>

namespace oncekey {

class StoreRoom {
 public:
  explicit StoreRoom(const Limits& limits) : limits_(limits) {}

  // What a record takes that has no body: claim and ending, with key, target and headers of usual length.
  static constexpr std::uint64_t kEndingBytes = 4096;

  struct Seen {
    std::uint64_t used = 0;
    // Of the file system; a size of 0 means that the store is not on a disk of this machine.
    std::uint64_t disk_free = 0;
    std::uint64_t disk_bytes = 0;
  };
  void look(const Seen& seen);

  // Room for a new record with so many bytes to begin with?
  bool for_claim(std::uint64_t bytes = 0) const { return left_for_claims() > static_cast<std::int64_t>(bytes); }
  // Room for the body of an answer, which was not set aside?
  bool for_body(std::uint64_t bytes) const;
  void took(std::uint64_t bytes) { took_.fetch_add(static_cast<std::int64_t>(bytes), std::memory_order_relaxed); }

  // How large the store may become, as far as that is known; 0 if it is not.
  std::uint64_t capacity() const { return capacity_.load(std::memory_order_relaxed); }
  // The shares of callers in the store's growth apply from here on.
  bool half_full() const {
    const std::uint64_t all = capacity();
    const auto since = static_cast<std::uint64_t>(took_.load(std::memory_order_relaxed));
    return all > 0 && used_.load(std::memory_order_relaxed) + since > all / 2;
  }
  // Of the file system at the last look; a size of 0 means that the store is not on a disk of this machine.
  struct Disk {
    std::uint64_t free_bytes = 0;
    std::uint64_t size_bytes = 0;
    std::uint64_t reserve_bytes = 0;
  };
  Disk disk() const { return {disk_free_.load(), disk_bytes_.load(), reserve_.load()}; }
  // Nothing while there is room; else what is missing, for people.
  std::optional<std::string> shortage() const;

  // Set aside for the ending of one claim, until this is destroyed.
  class Ending {
   public:
    explicit Ending(StoreRoom& room) : room_(&room) { grow(kEndingBytes); }
    Ending(Ending&& other) noexcept : room_(other.room_), bytes_(std::exchange(other.bytes_, 0)) {}
    Ending& operator=(Ending&&) = delete;
    ~Ending() { room_->set_aside_.fetch_sub(bytes_); }
    // A piece of a body that will be kept: answers under way at the same time must not all count on the same room.
    void grow(std::uint64_t more) {
      room_->set_aside_.fetch_add(static_cast<std::int64_t>(more));
      bytes_ += static_cast<std::int64_t>(more);
    }

   private:
    StoreRoom* room_;
    std::int64_t bytes_ = 0;
  };

 private:
  std::int64_t left_for_claims() const {
    return claims_end_in_.load(std::memory_order_relaxed) - took_.load(std::memory_order_relaxed) -
           set_aside_.load(std::memory_order_relaxed);
  }

  const Limits& limits_;
  // As of the last look; without one there is room, since most stores are not on this machine's disk.
  std::atomic<std::int64_t> claims_end_in_{std::int64_t{1} << 62};
  std::atomic<std::int64_t> bodies_end_in_{std::int64_t{1} << 62};
  std::atomic<std::int64_t> took_{0}; // since then
  std::atomic<std::int64_t> set_aside_{0};
  std::atomic<std::uint64_t> capacity_{0};
  std::atomic<std::uint64_t> used_{0};
  std::atomic<std::uint64_t> disk_free_{0};
  std::atomic<std::uint64_t> disk_bytes_{0};
  std::atomic<std::uint64_t> reserve_{0};
};

// What of a disk stays free: as configured, or 5 % of it, but at least 64 MiB and at most 1 GiB.
std::uint64_t disk_reserve(const Limits& limits, std::uint64_t disk_bytes);

// Looks at the file system under a store that takes so many bytes; nothing if it cannot be looked at.
std::optional<StoreRoom::Seen> look_at_disk(const std::string& folder, std::uint64_t used);

} // namespace oncekey
