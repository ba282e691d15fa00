// QueueLimits: how many calls may wait for a store, and how many bytes of bodies.
//
// New work (a claim, a job to stage or to take) is refused first. An owner that wants to write its answer is refused
// only at four times the limit: a refusal would turn done work into unknown work. Owners are as many as there were
// claims, so the wider limit still is one. A call without a body is not refused for bytes.
#pragma once

#include <oncekey/result.h>

#include <atomic>
#include <cstddef>
#include <optional>
#include <utility>

namespace oncekey {

enum class CallKind { begins_work, other };

struct QueueLimits {
  // At fifty thousand a second this is more than a second's work, longer than a client should be kept waiting.
  std::size_t calls_max = 65536;
  std::size_t bytes_max = std::size_t{256} << 20;

  bool are_reached(CallKind kind, std::size_t body_bytes, std::size_t calls, std::size_t bytes) const {
    if (kind == CallKind::begins_work) return calls >= calls_max || bytes >= bytes_max;
    return calls >= 4 * calls_max || (body_bytes > 0 && bytes >= 4 * bytes_max);
  }
};

inline Fault overloaded() {
  return unavailable("the store is overloaded: too many calls wait for it; try again later");
}

// Counts the calls that a store has not answered yet. Safe to use from several threads.
class QueueRoom {
 public:
  explicit QueueRoom(QueueLimits limits = {}) : limits_(limits) {}

  // The room that one call takes, until the place is destroyed. The QueueRoom outlives it.
  class Place {
   public:
    Place() = default;
    Place(Place&& other) noexcept : room_(std::exchange(other.room_, nullptr)), bytes_(other.bytes_) {}
    Place& operator=(Place other) noexcept {
      std::swap(room_, other.room_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Place() {
      if (room_ == nullptr) return;
      room_->calls_.fetch_sub(1, std::memory_order_relaxed);
      room_->bytes_.fetch_sub(bytes_, std::memory_order_relaxed);
    }

   private:
    friend class QueueRoom;
    Place(QueueRoom& room, std::size_t bytes) : room_(&room), bytes_(bytes) {}
    QueueRoom* room_ = nullptr;
    std::size_t bytes_ = 0;
  };

  // Nothing when the limits are reached. Threads that ask at the same time may pass them by one call each.
  std::optional<Place> admit(CallKind kind, std::size_t body_bytes) {
    if (limits_.are_reached(kind, body_bytes, calls_.load(std::memory_order_relaxed),
                            bytes_.load(std::memory_order_relaxed))) {
      return std::nullopt;
    }
    calls_.fetch_add(1, std::memory_order_relaxed);
    bytes_.fetch_add(body_bytes, std::memory_order_relaxed);
    return Place(*this, body_bytes);
  }

 private:
  const QueueLimits limits_;
  std::atomic<std::size_t> calls_ = 0;
  std::atomic<std::size_t> bytes_ = 0;
};

} // namespace oncekey
