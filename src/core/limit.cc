#include "core/limit.h"

#include <algorithm>
#include <array>
#include <list>
#include <optional>
#include <string>
#include <vector>

namespace oncekey {
namespace {

bool is_test_key(std::string_view key) { return key.starts_with("sk_test_") || key.starts_with("rk_test_"); }

// What stands behind the scheme; nothing for another scheme.
std::optional<std::string_view> after_scheme(std::string_view authorization, std::string_view scheme) {
  if (!starts_with_ignoring_case(authorization, scheme)) return std::nullopt;
  authorization.remove_prefix(scheme.size());
  const std::size_t begin = authorization.find_first_not_of(" \t");
  if (begin == 0 || begin == std::string_view::npos) return std::nullopt;
  return authorization.substr(begin);
}

Rate bucket_for(double per_second, double burst) {
  // Without a `burst` setting, the requests of one second may come at once.
  return {per_second, burst > 0 ? burst : std::max(1.0, per_second)};
}

} // namespace

Credentials credentials_of(const Headers& headers) {
  const auto authorization = headers.get("Authorization");
  if (!authorization) return Credentials::live;
  if (const auto token = after_scheme(*authorization, "Bearer"))
    return is_test_key(*token) ? Credentials::test : Credentials::live;
  if (const auto encoded = after_scheme(*authorization, "Basic")) {
    const auto user_and_password = base64_decode(*encoded);
    if (user_and_password && is_test_key(*user_and_password)) return Credentials::test;
  }
  return Credentials::live;
}

Limit limit_of(const RateLimits& gateway, const RateLimits& route, Credentials credentials) {
  Limit limit;
  // Test credentials fall under test_rate, or under rate where test_rate is not set.
  const auto set_rate = [&](const RateLimits& said, LimitOf of) {
    const bool own = credentials == Credentials::test && said.test_rate > 0;
    if (!own && said.rate <= 0) return false;
    limit.rate = own ? bucket_for(said.test_rate, said.test_burst) : bucket_for(said.rate, said.burst);
    limit.rate_of = of;
    return true;
  };
  if (!set_rate(route, LimitOf::route)) set_rate(gateway, LimitOf::gateway);
  limit.in_flight_of = route.max_in_flight > 0 ? LimitOf::route : LimitOf::gateway;
  limit.max_in_flight = route.max_in_flight > 0 ? route.max_in_flight : gateway.max_in_flight;
  return limit;
}

std::string_view rate_reason(LimitOf of) { return of == LimitOf::route ? "endpoint-rate" : "global-rate"; }
std::string_view in_flight_reason(LimitOf of) {
  return of == LimitOf::route ? "endpoint-concurrency" : "global-concurrency";
}

RateBucketId bucket_of(const Principal& principal, std::string_view route, Credentials credentials,
                       const KeyedHash& hash) {
  const std::string count = std::to_string(principal.parts.size());
  std::vector<std::string_view> parts{"oncekey bucket 1", route, credentials == Credentials::test ? "test" : "live",
                                      count};
  std::list<std::string> names;
  append_parts(principal, parts, names);
  return RateBucketId{hash.of(parts)};
}

RateBucketId bucket_of_address(std::string_view address, std::string_view route, const KeyedHash& hash) {
  return RateBucketId{hash.of(std::array{std::string_view("oncekey bucket of an address 1"), route, address})};
}

std::chrono::seconds whole_wait(std::chrono::milliseconds wait) {
  return std::max(std::chrono::seconds(1), std::chrono::ceil<std::chrono::seconds>(wait));
}

} // namespace oncekey
