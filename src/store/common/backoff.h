// Backoff: how long to leave a server alone that did not answer.
//
// Doubles from try to try, and each wait is drawn from its upper half at random: a hundred gateways that lost the same
// server must not come back at the same instant.
#pragma once

#include <oncekey/time.h>

#include <algorithm>
#include <optional>
#include <random>

namespace oncekey {

class Backoff {
 public:
  Backoff(Millis first, Millis longest) : first_(first), longest_(longest), next_(first) {}

  // The wait before the next try.
  Millis next() {
    const Millis wait = next_;
    next_ = std::min(longest_, 2 * next_);
    if (!random_) random_.emplace(std::random_device{}());
    return Millis{std::uniform_int_distribution<std::int64_t>(wait.count() / 2, wait.count())(*random_)};
  }
  // After a success that lasted.
  void reset() { next_ = first_; }

 private:
  const Millis first_;
  const Millis longest_;
  Millis next_;
  // Made at the first wait: asking the machine for randomness takes longer than a call's whole way through the client,
  // and nearly every call has a backoff that it never needs.
  std::optional<std::minstd_rand> random_;
};

} // namespace oncekey
