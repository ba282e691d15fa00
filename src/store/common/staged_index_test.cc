#include "store/common/staged_index.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

RecordId numbered(std::uint8_t number) {
  RecordId id;
  id.bytes[5] = number;
  return id;
}

Time at(std::int64_t millis) { return Time{Millis{millis}}; }

Record due_at(std::int64_t millis, bool ordered = false) {
  Record record;
  record.staged = true;
  record.ordered = ordered;
  record.lease_until = at(millis);
  record.route = "r";
  return record;
}

Record ended(RecordState state) {
  Record record = due_at(0);
  record.state = state;
  return record;
}

using Ids = std::vector<RecordId>;

TEST(StagedIndex, WhatIsDueLongestComesFirst) {
  StagedIndex index;
  index.note(numbered(1), due_at(30));
  index.note(numbered(2), due_at(10));
  index.note(numbered(3), due_at(20));
  EXPECT_EQ(index.due("r", at(25), 10), (Ids{numbered(2), numbered(3)}));
  EXPECT_EQ(index.due("r", at(25), 1), (Ids{numbered(2)}));
  EXPECT_TRUE(index.due("r", at(9), 10).empty());
}

TEST(StagedIndex, EquallyDueKeepTheOrderTheyCameIn) {
  StagedIndex index;
  for (const std::uint8_t number : {7, 3, 5}) index.note(numbered(number), due_at(10));
  EXPECT_EQ(index.due("r", at(10), 10), (Ids{numbered(7), numbered(3), numbered(5)}));
}

TEST(StagedIndex, ANewLeaseMovesAJobAndAnEndRemovesIt) {
  StagedIndex index;
  EXPECT_EQ(index.note(numbered(1), due_at(10)), StagedIndex::Change::added);
  EXPECT_EQ(index.note(numbered(1), due_at(50)), StagedIndex::Change::none);
  EXPECT_TRUE(index.due("r", at(20), 10).empty());
  EXPECT_EQ(index.note(numbered(1), ended(RecordState::completed)), StagedIndex::Change::removed);
  EXPECT_EQ(index.note(numbered(1), ended(RecordState::completed)), StagedIndex::Change::none);
  EXPECT_EQ(index.size(), 0U);
  EXPECT_TRUE(index.due("r", at(100), 10).empty());
}

TEST(StagedIndex, OnlyTheFirstOfAnOrderIsDueWhateverTheOthersWait) {
  StagedIndex index;
  index.note(numbered(1), due_at(40, true));
  index.note(numbered(2), due_at(10, true));
  EXPECT_TRUE(index.due("r", at(20), 10).empty());
  EXPECT_EQ(index.due("r", at(40), 10), (Ids{numbered(1)}));
  index.note(numbered(1), ended(RecordState::indeterminate));
  EXPECT_EQ(index.due("r", at(20), 10), (Ids{numbered(2)}));
}

TEST(StagedIndex, AJobInTheMiddleOfAnOrderMayEndFirst) {
  StagedIndex index;
  for (const std::uint8_t number : {1, 2, 3}) index.note(numbered(number), due_at(10, true));
  index.note(numbered(2), ended(RecordState::completed));
  index.note(numbered(1), ended(RecordState::completed));
  EXPECT_EQ(index.due("r", at(10), 10), (Ids{numbered(3)}));
}

TEST(StagedIndex, OneThatComesBackGoesToTheEnd) {
  StagedIndex index;
  for (const std::uint8_t number : {1, 2}) index.note(numbered(number), due_at(10, true));
  index.note(numbered(1), ended(RecordState::indeterminate));
  index.note(numbered(1), due_at(10, true));
  EXPECT_EQ(index.due("r", at(10), 10), (Ids{numbered(2)}));
}

TEST(StagedIndex, PlacesGoOnAfterThoseItWasFilledWith) {
  StagedIndex index;
  index.add_at(41, numbered(1), due_at(10));
  index.note(numbered(2), due_at(10));
  EXPECT_EQ(index.place_of(numbered(2)), 42U);
}

TEST(StagedIndex, RoutesDoNotStandInEachOthersWay) {
  StagedIndex index;
  index.note(numbered(1), due_at(10));
  Record other = due_at(20);
  other.route = "other";
  index.note(numbered(2), other);
  EXPECT_EQ(index.due("other", at(30), 1), (Ids{numbered(2)}));
  EXPECT_TRUE(index.due("unknown", at(30), 1).empty());
}

TEST(StagedIndex, AnIdThatIsFoundAtTwoPlacesHasTheNewer) {
  StagedIndex index;
  index.add_at(3, numbered(1), due_at(10, true));
  index.add_at(4, numbered(2), due_at(10, true));
  index.add_at(5, numbered(1), due_at(10, true));
  EXPECT_EQ(index.due("r", at(10), 10), (Ids{numbered(2)}));
  index.note(numbered(2), ended(RecordState::completed));
  EXPECT_EQ(index.due("r", at(10), 10), (Ids{numbered(1)}));
  index.note(numbered(1), ended(RecordState::completed));
  EXPECT_EQ(index.size(), 0U);
}

TEST(StagedIndex, WhatIsPostponedIsNotDue) {
  StagedIndex index;
  index.note(numbered(1), due_at(10));
  index.postpone(numbered(1), at(70));
  EXPECT_TRUE(index.due("r", at(60), 10).empty());
  EXPECT_EQ(index.due("r", at(70), 10), (Ids{numbered(1)}));
}

} // namespace
} // namespace oncekey
