#include "store/common/server_clock.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace oncekey {
namespace {

Millis monotonic_clock() { return std::chrono::floor<Millis>(std::chrono::steady_clock::now().time_since_epoch()); }

} // namespace

ServerClock::ServerClock(std::function<Millis()> local) : local_(local ? std::move(local) : monotonic_clock) {}

void ServerClock::learn(Time server_now) {
  const Millis here = local_();
  const Millis difference = server_now.time_since_epoch() - here;
  const std::lock_guard lock(mutex_);
  if (!stretch_ends_ || here >= *stretch_ends_) {
    last_difference_ = stretch_ends_ ? difference_ : difference;
    difference_ = difference;
    stretch_ends_ = here + kStretch;
  }
  difference_ = std::max(difference_, difference);
}

Time ServerClock::now() const {
  const Millis here = local_();
  const std::lock_guard lock(mutex_);
  return Time{here + std::max(difference_, last_difference_)};
}

} // namespace oncekey
