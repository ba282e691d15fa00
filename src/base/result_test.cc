#include <oncekey/result.h>

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace oncekey {
namespace {

TEST(Result, IsAValueOrAFault) {
  const Result<int> good = 3;
  EXPECT_TRUE(good.ok());
  EXPECT_EQ(*good, 3);
  const Result<int> bad = unavailable("the store is away");
  EXPECT_FALSE(bad);
  EXPECT_EQ(bad.fault().kind, FaultKind::unavailable);
  EXPECT_EQ(bad.fault().message, "the store is away");
  EXPECT_TRUE(ok_status().ok());
}

TEST(Result, AValueThatCannotBeCopiedIsMovedOut) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(7);
  const std::unique_ptr<int> taken = *std::move(result);
  EXPECT_EQ(*taken, 7);
}

TEST(Result, WhatIsTakenOutOfATemporaryOutlivesIt) {
  const auto list = [] { return Result<std::vector<std::string>>({"a long text that is not kept in place", "b"}); };
  std::string all;
  for (const std::string& text : list().value()) all += text;
  for (const std::string& text : *list()) all += text;
  EXPECT_EQ(all, "a long text that is not kept in placeba long text that is not kept in placeb");
  const Fault& fault = Result<int>(invalid("a long text that is not kept in place")).fault();
  EXPECT_EQ(fault.message, "a long text that is not kept in place");
}

TEST(Result, FaultsAreSpelledLikeTheirEnumerators) {
  EXPECT_EQ(to_string(FaultKind::newer_format), "newer_format");
  EXPECT_EQ(to_string(FaultKind::timeout), "timeout");
}

TEST(ResultDeathTest, TakingWhatIsNotThereEndsTheProcessWithTheReason) {
  const Result<int> bad = invalid("no");
  EXPECT_DEATH((void)bad.value(), "broken invariant: value\\(\\) of a Result that holds a fault");
  const Result<int> good = 1;
  EXPECT_DEATH((void)good.fault(), "broken invariant: fault\\(\\) of a Result that holds a value");
}

} // namespace
} // namespace oncekey
