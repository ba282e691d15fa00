// rate: token buckets, as pure functions of time.
//
// A principal may send `burst` requests at once and `per_second` in the long run. A bucket is two numbers; time is an
// argument.
#pragma once

#include <oncekey/result.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace oncekey {

struct Rate {
  double per_second = 0; // 0: no limit
  double burst = 0;      // at least 1 where there is a limit

  bool limits() const { return per_second > 0; }
};

// "100/s", "6000/m", "5/h". A fault says what is wrong.
Result<double> parse_rate(std::string_view text);

struct Taken {
  bool allowed = true;
  std::uint32_t remaining = 0;             // whole requests left at once
  std::chrono::milliseconds retry_after{}; // until the next one, where this one was not allowed
  std::chrono::milliseconds full_after{};  // until the bucket is full again
};

class TokenBucket {
 public:
  using Instant = std::chrono::steady_clock::time_point;

  // Takes one token if there is one. A bucket never seen before is full.
  Taken take(const Rate& rate, Instant now);

  // Full again: it need not be remembered.
  bool full(const Rate& rate, Instant now) const;

 private:
  double tokens_at(const Rate& rate, Instant now) const;

  bool used_ = false;
  double tokens_ = 0;
  Instant at_{};
};

} // namespace oncekey
