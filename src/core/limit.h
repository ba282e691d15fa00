// limit: which rate limits apply to a request, and which bucket it is counted in. Pure, like everything in this room.
//
// A route's own setting applies to that route alone. Routes without one share the gateway's setting. So each request is
// counted in one bucket and takes one place.
#pragma once

#include "base/crypto.h"
#include "core/rate_keeper.h"
#include "core/scope.h"

#include <oncekey/headers.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace oncekey {

// Stripe's keys say what they are for; other accounts count as live.
enum class Credentials { live, test };
// `sk_test_...` or `rk_test_...` as a bearer token or as the user of basic authentication.
Credentials credentials_of(const Headers& headers);

// Whether a limit is the gateway's or the route's.
enum class LimitOf { gateway, route };

struct Limit {
  Rate rate; // limits nothing where none is set
  LimitOf rate_of = LimitOf::gateway;
  std::uint32_t max_in_flight = 0; // 0: no limit
  LimitOf in_flight_of = LimitOf::gateway;

  bool any() const { return rate.limits() || max_in_flight > 0; }
};
Limit limit_of(const RateLimits& gateway, const RateLimits& route, Credentials credentials);

// In the words of Stripe-Rate-Limited-Reason.
std::string_view rate_reason(LimitOf of);
std::string_view in_flight_reason(LimitOf of);

// Test and live requests of one account have buckets of their own. `route` is empty for the gateway's limits.
RateBucketId bucket_of(const Principal& principal, std::string_view route, Credentials credentials,
                       const KeyedHash& hash);
// For requests that name no account: those of one address are counted together.
RateBucketId bucket_of_address(std::string_view address, std::string_view route, const KeyedHash& hash);

// How long to wait, for Retry-After: whole seconds, at least one.
std::chrono::seconds whole_wait(std::chrono::milliseconds wait);

} // namespace oncekey
