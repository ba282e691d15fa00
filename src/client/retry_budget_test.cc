#include "client/retry_budget.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace oncekey {
namespace {

constexpr Time kStart{Millis(1'700'000'000'000)};

int takes(RetryBudget& budget, Time now, int wanted) {
  int taken = 0;
  for (int i = 0; i < wanted; ++i) taken += budget.take(now) ? 1 : 0;
  return taken;
}

TEST(RetryBudget, BeginsWithTheReserve) {
  RetryBudget budget({0.1, 20, Millis(60'000)}, kStart);
  EXPECT_EQ(takes(budget, kStart, 1000), 20);
}

TEST(RetryBudget, AllowsAShareOfTheOperations) {
  RetryBudget budget({0.1, 20, Millis(0)}, kStart);
  takes(budget, kStart, 20);
  int retries = 0;
  for (int i = 0; i < 10'000; ++i) {
    budget.earn(kStart);
    retries += takes(budget, kStart, 8);
  }
  EXPECT_EQ(retries, 1000);
}

TEST(RetryBudget, GrowsAgainWithTimeUpToTheReserve) {
  RetryBudget budget({0.1, 20, Millis(60'000)}, kStart);
  takes(budget, kStart, 20);
  EXPECT_EQ(takes(budget, kStart + std::chrono::seconds(30), 1000), 10);
  EXPECT_EQ(takes(budget, kStart + std::chrono::hours(30), 1000), 20);
}

TEST(RetryBudget, SavesUpNoMoreThanAFewReserves) {
  RetryBudget budget({0.1, 20, Millis(60'000)}, kStart);
  for (int i = 0; i < 1'000'000; ++i) budget.earn(kStart);
  EXPECT_EQ(takes(budget, kStart, 1000), 100);
}

TEST(RetryBudget, IsSharedByAllWhoNameTheSameFile) {
  const std::string path = testing::TempDir() + "oncekey-budget-" + std::to_string(::getpid());
  std::filesystem::remove(path);
  RetryBudget one({0.1, 20, Millis(60'000)}, kStart, path);
  RetryBudget two({0.1, 20, Millis(60'000)}, kStart, path);
  EXPECT_EQ(takes(one, kStart, 12), 12);
  EXPECT_EQ(takes(two, kStart, 1000), 8);
  EXPECT_EQ(takes(one, kStart, 1000), 0);
  for (int i = 0; i < 30; ++i) two.earn(kStart);
  EXPECT_EQ(takes(one, kStart, 1000), 3);
  EXPECT_EQ(takes(one, kStart + std::chrono::seconds(30), 1000), 10);
  // What is damaged is started over.
  std::ofstream(path, std::ios::trunc) << "oncekey budget 1 nonsense";
  EXPECT_EQ(takes(two, kStart, 1000), 20);
  std::filesystem::remove(path);
}

TEST(RetryBudget, WhoseFileFailsIsItsOwn) {
  RetryBudget budget({0.1, 20, Millis(60'000)}, kStart, "/no/such/folder/budget");
  EXPECT_EQ(takes(budget, kStart, 1000), 20);
}

TEST(RetryBudget, OfNothingAllowsNothing) {
  RetryBudget budget({0, 0, Millis(60'000)}, kStart);
  budget.earn(kStart);
  EXPECT_FALSE(budget.take(kStart + std::chrono::hours(1)));
}

} // namespace
} // namespace oncekey
