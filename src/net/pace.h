// pace: how slow a peer may be.
//
// A time-out between two bytes lets a client hold memory and places for hours by sending one byte now and then. So a
// peer must keep a minimum rate: each `quantum` of bytes (the rate times the patience) has to move within `patience`
// of waiting for that peer. Bytes that came early are not saved up: a client that sent nearly everything at once has
// no longer for the rest than any other. Time in which nothing waits for the peer does not count, as while an upstream
// reads slowly.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace oncekey {

class Pace {
 public:
  using Duration = std::chrono::steady_clock::duration;

  Pace(std::chrono::milliseconds patience, std::uint64_t bytes_per_second)
      : patience_(patience),
        quantum_(std::max<std::uint64_t>(1, bytes_per_second * static_cast<std::uint64_t>(patience.count()) / 1000)),
        left_(patience) {}

  // How long the next wait may last.
  Duration left() const { return left_; }
  // `bytes` moved after a wait of that length.
  void moved(std::uint64_t bytes, Duration waited) {
    moved_ += bytes;
    left_ -= waited;
    if (moved_ < quantum_) return;
    moved_ = 0;
    left_ = patience_;
  }

 private:
  std::chrono::milliseconds patience_;
  std::uint64_t quantum_;
  std::uint64_t moved_ = 0;
  Duration left_;
};

} // namespace oncekey
