#include "core/scope.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

class FingerprintOf : public testing::Test {
 protected:
  std::string print(std::string_view body, std::string_view type = "application/json", std::string_view method = "POST",
                    std::string_view target = "/a", std::initializer_list<Field> more = {}) {
    Headers headers;
    headers.add("Content-Type", type);
    for (const Field& field : more) headers.add(field.name, field.value);
    return to_hex(fingerprint_of(policy_, {method, target, headers}, body, hash_));
  }
  Policy policy_ = *policy_by_name("stripe-v1");
  KeyedHash hash_{Secret{7}};
};

TEST_F(FingerprintOf, MethodTargetAndBodyCount) {
  const std::string first = print("{}");
  EXPECT_EQ(print("{}"), first);
  EXPECT_NE(print("{}", "application/json", "DELETE"), first);
  EXPECT_NE(print("{}", "application/json", "POST", "/b"), first);
  EXPECT_NE(print("{}", "application/json", "POST", "/a?x"), first);
  EXPECT_NE(print("[]"), first);
}

TEST_F(FingerprintOf, OrderCountsInBytesAndNotInCanonicalForm) {
  EXPECT_EQ(print(R"({"a":1,"b":2})"), print(R"({"b":2,"a":1})"));
  EXPECT_EQ(print(R"({"a":1,"b":2})", "application/vnd.api+json; v=1"), print(R"({"b":2,"a":1})"));
  EXPECT_EQ(print("a=1&b=2", "application/x-www-form-urlencoded"),
            print("b=2&a=1", "application/x-www-form-urlencoded; charset=utf-8"));
  EXPECT_NE(print(R"({"a":1,"b":2})", "text/plain"), print(R"({"b":2,"a":1})", "text/plain"));
  policy_.fingerprint = FingerprintMode::bytes;
  EXPECT_NE(print(R"({"a":1,"b":2})"), print(R"({"b":2,"a":1})"));
}

TEST_F(FingerprintOf, WhatDoesNotParseIsHashedAsBytes) {
  EXPECT_NE(print(R"({"a":1,"b":2)"), print(R"({"b":2,"a":1)"));
  EXPECT_EQ(print("{broken"), print("{broken"));
  EXPECT_NE(print("a=%zz", "application/x-www-form-urlencoded"), print("a=%25zz", "application/x-www-form-urlencoded"));
}

TEST_F(FingerprintOf, KindsOfBodiesNeverMeet) {
  // The canonical form of {} sent as bytes.
  EXPECT_NE(print("{}"), print("{}", "text/plain"));
  EXPECT_NE(print("", "application/x-www-form-urlencoded"), print("", "text/plain"));
}

TEST_F(FingerprintOf, HeadersCountOnlyWhenListed) {
  const auto with = [&](std::initializer_list<Field> more) {
    return print("{}", "application/json", "POST", "/a", more);
  };
  EXPECT_EQ(with({{"X-Version", "1"}}), with({{"X-Version", "2"}}));
  policy_.fingerprint_headers = {"x-version", "X-Other"};
  EXPECT_NE(with({{"X-Version", "1"}}), with({{"X-Version", "2"}}));
  EXPECT_NE(with({{"X-Version", "1"}}), with({{"X-Other", "1"}}));
  EXPECT_NE(with({{"X-Version", ""}}), with({}));
  EXPECT_NE(with({{"X-Version", "1"}, {"X-Version", "2"}}), with({{"X-Version", "1, 2"}}));
}

TEST_F(FingerprintOf, TheHostNameCountsUnlessIgnored) {
  const auto at = [&](std::string_view host) {
    return print("{}", "application/json", "POST", "/a", {{"Host", host}});
  };
  EXPECT_NE(at("a.example"), at("b.example"));
  EXPECT_EQ(at("a.example"), at("A.Example.:8443"));
  EXPECT_NE(at("a.example"), print("{}"));
  policy_.ignore_host = true;
  EXPECT_EQ(at("a.example"), at("b.example"));
}

TEST_F(FingerprintOf, TheSpellingOfThePathCounts) {
  EXPECT_NE(print("{}", "application/json", "POST", "/a"), print("{}", "application/json", "POST", "//a"));
}

TEST_F(FingerprintOf, IgnoredPointersDoNotCount) {
  policy_.fingerprint_ignore = {"/trace"};
  EXPECT_EQ(print(R"({"a":1,"trace":"x"})"), print(R"({"trace":"y","a":1})"));
  EXPECT_NE(print(R"({"a":1,"trace":"x"})"), print(R"({"a":2,"trace":"x"})"));
}

TEST_F(FingerprintOf, AnotherSecretMakesAnotherHash) {
  const KeyedHash other{Secret{8}};
  const Headers none;
  EXPECT_NE(fingerprint_of(policy_, {"POST", "/a", none}, "x", hash_),
            fingerprint_of(policy_, {"POST", "/a", none}, "x", other));
}

} // namespace
} // namespace oncekey
