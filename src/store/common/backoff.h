// Backoff: how long to leave a server alone that did not answer.
//
// Doubles from try to try, and each wait is drawn from its upper half at random: a hundred gateways that lost the same
// server must not come back at the same instant.
#pragma once

#include <oncekey/time.h>

#include <algorithm>
#include <random>

namespace oncekey {

class Backoff {
 public:
  Backoff(Millis first, Millis longest) : first_(first), longest_(longest), next_(first) {}

  // The wait before the next try.
  Millis next() {
    const Millis wait = next_;
    next_ = std::min(longest_, 2 * next_);
    return Millis{std::uniform_int_distribution<std::int64_t>(wait.count() / 2, wait.count())(random_)};
  }
  // After a success that lasted.
  void reset() { next_ = first_; }

 private:
  const Millis first_;
  const Millis longest_;
  Millis next_;
  std::minstd_rand random_{std::random_device{}()};
};

} // namespace oncekey
