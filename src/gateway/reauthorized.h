// reauthorized: callers that the upstream has said yes to lately (`reauthorize_for`).
#pragma once

#include "base/crypto.h"
#include "net/loop.h"

#include <cstring>
#include <mutex>
#include <vector>

namespace oncekey {

// Shared by all threads, and bounded: one place for each caller, by its hash; a newer one takes it. A caller that lost
// its place is asked about again, which costs a call and grants nothing.
class Reauthorized {
 public:
  bool holds(const HashBytes& caller, MonotonicTime now) {
    const std::lock_guard lock(mutex_);
    if (places_.empty()) return false;
    const Place& place = place_of(caller);
    return place.caller == caller && now < place.until;
  }
  void remember(const HashBytes& caller, MonotonicTime until) {
    const std::lock_guard lock(mutex_);
    if (places_.empty()) places_.resize(kPlaces);
    place_of(caller) = {caller, until};
  }

 private:
  static constexpr std::size_t kPlaces = 4096;
  struct Place {
    HashBytes caller{};
    MonotonicTime until;
  };
  Place& place_of(const HashBytes& caller) {
    std::uint64_t number = 0;
    std::memcpy(&number, caller.data(), sizeof number);
    return places_[number % kPlaces];
  }

  std::mutex mutex_;
  std::vector<Place> places_; // empty until the first
};

} // namespace oncekey
