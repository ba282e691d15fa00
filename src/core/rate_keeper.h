// rate_keeper: how many requests one account may send, and the interface that counts them.
//
// A limiter fails open: when the counts cannot be reached, the request passes. It protects the API from too many
// requests, not from a second execution.
#pragma once

#include <oncekey/record.h>
#include <oncekey/result.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string_view>

namespace oncekey {

// A token bucket: `burst` requests at once and `per_second` in the long run.
struct Rate {
  double per_second = 0; // 0: no limit
  double burst = 0;      // at least 1 where there is a limit

  bool limits() const { return per_second > 0; }
  friend bool operator==(const Rate&, const Rate&) = default;
};

// What one account may have, of one route or of the whole gateway. Zero stands for "not said" everywhere.
struct RateLimits {
  double rate = 0; // requests per second
  double burst = 0;
  double test_rate = 0; // the same for test credentials
  double test_burst = 0;
  std::uint32_t max_in_flight = 0; // requests of one account under way at one time

  bool any() const { return rate > 0 || test_rate > 0 || max_in_flight > 0; }
  friend bool operator==(const RateLimits&, const RateLimits&) = default;
};

struct Taken {
  bool allowed = true;
  std::uint32_t remaining = 0;             // whole requests left at once
  std::chrono::milliseconds retry_after{}; // until the next one, where this one was not allowed
  std::chrono::milliseconds full_after{};  // until the bucket is full again
};

// "100/s", "6000/m", "5/h". A fault says what is wrong.
Result<double> parse_rate(std::string_view text);

// Pure: time is an argument.
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

// Names a bucket: keyed hash of an account and what of it is limited.
using RateBucketId = Digest<struct RateBucketIdTag>;

// Keeps the buckets of all accounts. Calls from any thread; `done` is called once, on a thread of the keeper's choice,
// possibly before the call returns. A fault means that the count is unknown: let the request pass.
class RateKeeper {
 public:
  virtual ~RateKeeper() = default;
  virtual void take(const RateBucketId& bucket, const Rate& rate, std::function<void(Result<Taken>)> done) = 0;
  // Puts one token back: the request turned out to cost nothing. Best effort.
  virtual void give_back(const RateBucketId& bucket, const Rate& rate) = 0;
};

} // namespace oncekey
