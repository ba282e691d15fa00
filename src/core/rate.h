// rate: token buckets, as pure functions of time.
//
// A principal may send `burst` requests at once and `per_second` in the long run. A bucket is two numbers; time is an
// argument.
#pragma once

#include "core/rate_keeper.h"

#include <oncekey/result.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace oncekey {

// "100/s", "6000/m", "5/h". A fault says what is wrong.
Result<double> parse_rate(std::string_view text);

class TokenBucket {
 public:
  using Instant = std::chrono::steady_clock::time_point;

  // Takes one token if there is one. A bucket never seen before is full.
  Taken take(const Rate& rate, Instant now);

  // Puts one back, as far as there is room.
  void give_back(const Rate& rate, Instant now);

  // Full again: it need not be remembered.
  bool full(const Rate& rate, Instant now) const;

  // How long it takes to be full again, in seconds: the longer, the more is lost when the bucket is forgotten.
  double seconds_to_full(const Rate& rate, Instant now) const;

 private:
  double tokens_at(const Rate& rate, Instant now) const;

  bool used_ = false;
  double tokens_ = 0;
  Instant at_{};
};

} // namespace oncekey
