// Sharded: one thing in several parts, each under a lock of its own. There are enough of them that threads rarely meet.
#pragma once

#include <array>
#include <mutex>

namespace oncekey {

template <class Part, std::size_t kParts = 16>
class Sharded {
  struct Shard {
    std::mutex mutex;
    Part part;
  };

 public:
  // A part, locked for as long as this lives.
  class Locked {
   public:
    explicit Locked(Shard& shard) : lock_(shard.mutex), part_(shard.part) {}
    Part* operator->() const { return &part_; }
    Part& operator*() const { return part_; }

   private:
    const std::lock_guard<std::mutex> lock_;
    Part& part_;
  };

  // The part of an id, by a byte of it that is as good as random.
  template <class Id>
  Locked of(const Id& id) const {
    return Locked(shards_[id.bytes[31] % kParts]);
  }
  // Calls `visit(part)` for each part in turn, under its lock.
  template <class Visit>
  void each(Visit visit) const {
    for (Shard& shard : shards_) visit(*Locked(shard));
  }

 private:
  mutable std::array<Shard, kParts> shards_;
};

} // namespace oncekey
