#include "store/common/job_index.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

RecordId numbered(std::uint8_t number) {
  RecordId id;
  id.bytes[5] = number;
  return id;
}

Time at(std::int64_t millis) { return Time{Millis{millis}}; }

StoredJob job(std::uint8_t number, std::int64_t due, bool ordered = false) {
  StoredJob job;
  job.id = numbered(number);
  job.ordered = ordered;
  job.due_at = at(due);
  job.expires_at = at(1000);
  job.route = "r";
  return job;
}

StoredJob ended(std::uint8_t number, JobState state, bool ordered = false) {
  StoredJob ended = job(number, 0, ordered);
  ended.state = state;
  return ended;
}

using Ids = std::vector<RecordId>;

TEST(JobIndex, WhatIsDueLongestComesFirst) {
  JobIndex index;
  index.note(job(1, 30));
  index.note(job(2, 10));
  index.note(job(3, 20));
  EXPECT_EQ(index.due({"r", 10, {}, {}}, at(25)), (Ids{numbered(2), numbered(3)}));
  EXPECT_EQ(index.due({"r", 1, {}, {}}, at(25)), (Ids{numbered(2)}));
  EXPECT_TRUE(index.due({"r", 10, {}, {}}, at(9)).empty());
}

TEST(JobIndex, EquallyDueKeepTheOrderTheyCameIn) {
  JobIndex index;
  for (const std::uint8_t number : {7, 3, 5}) index.note(job(number, 10));
  EXPECT_EQ(index.due({"r", 10, {}, {}}, at(10)), (Ids{numbered(7), numbered(3), numbered(5)}));
}

TEST(JobIndex, ANewLeaseMovesAJobAndAnEndRemovesIt) {
  JobIndex index;
  index.note(job(1, 10));
  EXPECT_EQ(index.place_of(numbered(1)), 1U);
  index.note(job(1, 50));
  EXPECT_EQ(index.place_of(numbered(1)), 1U);
  EXPECT_TRUE(index.due({"r", 10, {}, {}}, at(20)).empty());
  index.note(ended(1, JobState::delivered));
  EXPECT_FALSE(index.place_of(numbered(1)));
  index.note(ended(1, JobState::delivered));
  EXPECT_EQ(index.size(), 0U);
  EXPECT_TRUE(index.due({"r", 10, {}, {}}, at(100)).empty());
}

TEST(JobIndex, OnlyTheFirstOfAnOrderIsDueWhateverTheOthersWait) {
  JobIndex index;
  index.note(job(1, 40, true));
  index.note(job(2, 10, true));
  EXPECT_TRUE(index.due({"r", 10, {}, {}}, at(20)).empty());
  EXPECT_EQ(index.due({"r", 10, {}, {}}, at(40)), (Ids{numbered(1)}));
  index.note(ended(1, JobState::dead, true));
  EXPECT_EQ(index.due({"r", 10, {}, {}}, at(20)), (Ids{numbered(2)}));
}

TEST(JobIndex, AJobInTheMiddleOfAnOrderMayEndFirst) {
  JobIndex index;
  for (const std::uint8_t number : {1, 2, 3}) index.note(job(number, 10, true));
  index.note(ended(2, JobState::delivered, true));
  index.note(ended(1, JobState::delivered));
  EXPECT_EQ(index.due({"r", 10, {}, {}}, at(10)), (Ids{numbered(3)}));
}

TEST(JobIndex, OneThatComesBackGoesToTheEnd) {
  JobIndex index;
  for (const std::uint8_t number : {1, 2}) index.note(job(number, 10, true));
  index.note(ended(1, JobState::dead, true));
  index.note(job(1, 10, true));
  EXPECT_EQ(index.due({"r", 10, {}, {}}, at(10)), (Ids{numbered(2)}));
}

TEST(JobIndex, PlacesGoOnAfterThoseItWasFilledWith) {
  JobIndex index;
  index.add_at(41, job(1, 10));
  index.note(job(2, 10));
  EXPECT_EQ(index.place_of(numbered(2)), 42U);
}

TEST(JobIndex, RoutesDoNotStandInEachOthersWay) {
  JobIndex index;
  index.note(job(1, 10));
  StoredJob other = job(2, 20);
  other.route = "other";
  index.note(other);
  EXPECT_EQ(index.due({"other", 1, {}, {}}, at(30)), (Ids{numbered(2)}));
  EXPECT_TRUE(index.due({"unknown", 1, {}, {}}, at(30)).empty());
}

TEST(JobIndex, AnIdThatIsFoundAtTwoPlacesHasTheNewer) {
  JobIndex index;
  index.add_at(3, job(1, 10, true));
  index.add_at(4, job(2, 10, true));
  index.add_at(5, job(1, 10, true));
  EXPECT_EQ(index.due({"r", 10, {}, {}}, at(10)), (Ids{numbered(2)}));
  index.note(ended(2, JobState::delivered, true));
  EXPECT_EQ(index.due({"r", 10, {}, {}}, at(10)), (Ids{numbered(1)}));
  index.note(ended(1, JobState::delivered));
  EXPECT_EQ(index.size(), 0U);
}

TEST(JobIndex, WhatIsPostponedIsNotDue) {
  JobIndex index;
  index.note(job(1, 10));
  index.postpone(numbered(1), at(70));
  EXPECT_TRUE(index.due({"r", 10, {}, {}}, at(60)).empty());
  EXPECT_EQ(index.due({"r", 10, {}, {}}, at(70)), (Ids{numbered(1)}));
}

TEST(JobIndex, ADeadLetterIsCountedAndNeverDue) {
  JobIndex index;
  index.note(job(1, 10));
  index.note(ended(2, JobState::taken));
  index.note(job(3, 10));
  index.note(ended(3, JobState::dead));
  EXPECT_EQ(index.due({"r", 10, {}, {}}, at(20)), (Ids{numbered(2), numbered(1)}));
  EXPECT_EQ(index.count(),
            (std::vector<JobCount>{{"r", JobState::waiting, 1}, {"r", JobState::taken, 1}, {"r", JobState::dead, 1}}));
  JobListRequest request;
  request.state = JobState::dead;
  EXPECT_EQ(index.list(request, at(20)), (Ids{numbered(3)}));
  index.note(ended(3, JobState::dropped));
  EXPECT_TRUE(index.list(request, at(20)).empty());
}

TEST(JobIndex, AnOrderDoesNotWaitForADeadLetterThatIsThereAtTheStart) {
  JobIndex index;
  index.add_at(3, ended(1, JobState::dead, true));
  index.add_at(4, job(2, 10, true));
  EXPECT_EQ(index.due({"r", 10, {}, {}}, at(10)), (Ids{numbered(2)}));
  index.note(job(1, 10, true));
  EXPECT_EQ(index.place_of(numbered(1)), 5U);
  EXPECT_EQ(index.due({"r", 10, {}, {}}, at(10)), (Ids{numbered(2)}));
}

TEST(JobIndex, OverdueJobsAreThoseThatHaveBeenDueForLong) {
  JobIndex index;
  index.note(job(1, 10));
  index.note(job(2, 20));
  EXPECT_EQ(index.due({"r", 10, {}, Millis{15}}, at(30)), (Ids{numbered(1)}));
}

TEST(JobIndex, ExpiredJobsAreFoundWhateverTheirState) {
  JobIndex index;
  index.note(job(1, 10));
  index.note(ended(2, JobState::dead));
  EXPECT_TRUE(index.expired(at(999), 10).empty());
  EXPECT_EQ(index.expired(at(1000), 10).size(), 2U);
  StoredJob longer = job(1, 10);
  longer.expires_at = at(2000);
  index.note(longer);
  EXPECT_EQ(index.expired(at(1000), 10), (Ids{numbered(2)}));
  index.forget(numbered(2));
  EXPECT_EQ(index.size(), 1U);
}

} // namespace
} // namespace oncekey
