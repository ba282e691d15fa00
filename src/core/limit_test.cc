#include "core/limit.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

Headers authorized(std::string_view value) {
  Headers headers;
  headers.add("Authorization", value);
  return headers;
}

TEST(Credentials, OfTestsAreToldByTheirKey) {
  EXPECT_EQ(credentials_of(authorized("Bearer sk_test_1")), Credentials::test);
  EXPECT_EQ(credentials_of(authorized("bearer  rk_test_1")), Credentials::test);
  EXPECT_EQ(credentials_of(authorized("Basic " + base64_encode("sk_test_1:"))), Credentials::test);
  EXPECT_EQ(credentials_of(authorized("Bearer sk_live_1")), Credentials::live);
  EXPECT_EQ(credentials_of(authorized("Basic " + base64_encode("alice:sk_test_1"))), Credentials::live);
  EXPECT_EQ(credentials_of(authorized("Basic ???")), Credentials::live);
  EXPECT_EQ(credentials_of(authorized("sk_test_1")), Credentials::live);
  EXPECT_EQ(credentials_of(Headers()), Credentials::live);
}

TEST(Limits, OfARouteComeBeforeThoseOfTheGateway) {
  const RateLimits gateway{100, 20, 25, 0, 50};
  const RateLimits route{5, 0, 0, 0, 3};
  const Limit own = limit_of(gateway, route, Credentials::live);
  EXPECT_EQ(own.rate, (Rate{5, 5}));
  EXPECT_EQ(rate_reason(own.rate_of), "endpoint-rate");
  EXPECT_EQ(own.max_in_flight, 3u);
  EXPECT_EQ(in_flight_reason(own.in_flight_of), "endpoint-concurrency");

  const Limit general = limit_of(gateway, RateLimits{}, Credentials::live);
  EXPECT_EQ(general.rate, (Rate{100, 20}));
  EXPECT_EQ(rate_reason(general.rate_of), "global-rate");
  EXPECT_EQ(general.max_in_flight, 50u);
  EXPECT_EQ(in_flight_reason(general.in_flight_of), "global-concurrency");
  EXPECT_FALSE(limit_of({}, {}, Credentials::live).any());
}

TEST(Limits, OfTestCredentialsAreTheirOwnWhereThereAreAny) {
  EXPECT_EQ(limit_of({100, 20, 25, 0, 0}, {}, Credentials::test).rate, (Rate{25, 25}));
  EXPECT_EQ(limit_of({100, 20, 0, 0, 0}, {}, Credentials::test).rate, (Rate{100, 20}));
  EXPECT_FALSE(limit_of({0, 0, 25, 0, 0}, {}, Credentials::live).any());
  EXPECT_EQ(limit_of({0, 0, 25, 5, 0}, {3, 0, 0, 0, 0}, Credentials::test).rate, (Rate{3, 3})) << "the route's";
}

TEST(Limits, BelowOneASecondStillLetOneThrough) {
  EXPECT_EQ(limit_of({0.1, 0, 0, 0, 0}, {}, Credentials::live).rate, (Rate{0.1, 1}));
}

TEST(Buckets, AreApartForAccountsRoutesAndKindsOfCredentials) {
  const KeyedHash hash(Secret{});
  const Policy policy = *policy_by_name("classic");
  const Headers alice = authorized("alice"), bob = authorized("bob");
  const auto of = [&](const Headers& headers, std::string_view route, Credentials credentials) {
    return bucket_of(std::get<Principal>(find_principal(policy, headers)), route, credentials, hash);
  };
  const RateBucketId first = of(alice, "", Credentials::live);
  EXPECT_EQ(first, of(alice, "", Credentials::live));
  EXPECT_NE(first, of(bob, "", Credentials::live));
  EXPECT_NE(first, of(alice, "/v1/*", Credentials::live));
  EXPECT_NE(first, of(alice, "", Credentials::test));
  EXPECT_NE(bucket_of_address("10.0.0.1", "", hash), bucket_of_address("10.0.0.2", "", hash));
}

TEST(Waits, AreWholeSecondsAndNeverNone) {
  using std::chrono::milliseconds;
  using std::chrono::seconds;
  EXPECT_EQ(whole_wait(milliseconds(0)), seconds(1));
  EXPECT_EQ(whole_wait(milliseconds(1000)), seconds(1));
  EXPECT_EQ(whole_wait(milliseconds(1001)), seconds(2));
}

} // namespace
} // namespace oncekey
