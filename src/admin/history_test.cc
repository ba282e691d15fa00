#include "admin/history.h"

#include "base/enum_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace oncekey {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint64_t kFirst = 1'000'000;

History::Row row(double at) {
  History::Row made{};
  made[0] = at;
  return made;
}

std::vector<double> times(const History::Since& since) {
  std::vector<double> all;
  for (const History::Row& each : since.rows) all.push_back(each[0]);
  return all;
}

TEST(History, GivesWhatCameSinceARow) {
  History history(kFirst);
  for (const double at : {1, 2, 3}) history.add(row(at));
  EXPECT_EQ(history.next(), kFirst + 3);
  EXPECT_THAT(times(history.since(std::nullopt)), ElementsAre(1, 2, 3));
  EXPECT_THAT(times(history.since(kFirst + 1)), ElementsAre(2, 3));
  EXPECT_THAT(times(history.since(kFirst + 3)), IsEmpty());
  EXPECT_FALSE(history.since(kFirst + 3).gap);
}

TEST(History, ForgetsRowsOlderThanAnHour) {
  History history(kFirst);
  for (std::size_t i = 0; i < History::kRows + 2; ++i) history.add(row(static_cast<double>(i)));
  EXPECT_EQ(history.since(std::nullopt).rows.size(), History::kRows);
  EXPECT_EQ(times(history.since(std::nullopt)).front(), 2);
  EXPECT_FALSE(history.since(kFirst + 2).gap);
  EXPECT_TRUE(history.since(kFirst + 1).gap) << "one row is gone";
  EXPECT_EQ(history.since(kFirst + 1).rows.size(), History::kRows) << "so all that there is";
}

TEST(History, KnowsTheNumbersOfAnotherProcess) {
  History history(kFirst);
  history.add(row(1));
  EXPECT_TRUE(history.since(kFirst - 1).gap);
  EXPECT_TRUE(history.since(kFirst + 2).gap);
  EXPECT_THAT(times(history.since(kFirst + 2)), ElementsAre(1));
}

TEST(History, HasAColumnForEveryName) {
  std::size_t columns = 0;
  each_enumerator<HistoryColumn>([&](HistoryColumn) { ++columns; });
  EXPECT_EQ(columns, kHistoryColumns);
}

TEST(History, PutsDecisionsIntoTheColumnsThatPeopleAskFor) {
  EXPECT_EQ(column_of_decision("execute"), HistoryColumn::first);
  EXPECT_EQ(column_of_decision("probe"), HistoryColumn::first);
  EXPECT_EQ(column_of_decision("replay"), HistoryColumn::replay);
  EXPECT_EQ(column_of_decision("mismatch"), HistoryColumn::mismatch);
  EXPECT_EQ(column_of_decision("in_progress"), HistoryColumn::in_progress);
  EXPECT_EQ(column_of_decision("indeterminate"), HistoryColumn::held);
  EXPECT_EQ(column_of_decision("rate_limited"), HistoryColumn::refused);
  EXPECT_EQ(column_of_decision("upstream_timeout"), HistoryColumn::failed);
  EXPECT_EQ(column_of_decision("pass"), HistoryColumn::passed);
  EXPECT_EQ(column_of_decision("well_known"), std::nullopt);
}

TEST(Percentile, IsInterpolatedWithinABucket) {
  const std::vector<double> bounds{1, 2, 4};
  EXPECT_TRUE(std::isnan(percentile(bounds, std::vector<std::uint64_t>{0, 0, 0, 0}, 0.5)));
  EXPECT_DOUBLE_EQ(percentile(bounds, std::vector<std::uint64_t>{10, 0, 0, 0}, 0.5), 0.5);
  EXPECT_DOUBLE_EQ(percentile(bounds, std::vector<std::uint64_t>{0, 10, 0, 0}, 0.5), 1.5);
  EXPECT_DOUBLE_EQ(percentile(bounds, std::vector<std::uint64_t>{90, 0, 10, 0}, 0.95), 3);
  EXPECT_DOUBLE_EQ(percentile(bounds, std::vector<std::uint64_t>{0, 0, 0, 10}, 0.99), 4) << "beyond the last bound";
}

} // namespace
} // namespace oncekey
