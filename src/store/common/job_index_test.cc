#include "store/common/job_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

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

TEST(JobIndex, AJobThatComesAgainForAnotherRouteLeavesTheFirst) {
  JobIndex index;
  index.note(job(1, 10));
  StoredJob other = job(1, 10);
  other.route = "other";
  index.note(other);
  EXPECT_TRUE(index.due({"r", 10, {}, {}}, at(20)).empty());
  EXPECT_EQ(index.due({"other", 10, {}, {}}, at(20)), (Ids{numbered(1)}));
  EXPECT_EQ(index.count(), (std::vector<JobCount>{{"other", JobState::waiting, 1}}));
}

// What an index answers, found by looking at every job.
class EveryJob {
 public:
  void note(const StoredJob& job) {
    const auto at = find(job.id);
    const bool stays = at != jobs_.end() && (job.state == JobState::dead || at->job.state != JobState::dead);
    const std::uint64_t place = stays ? at->place : next_place_;
    forget(job.id);
    if (job.open() || job.state == JobState::dead) add_at(place, job);
  }
  void add_at(std::uint64_t place, const StoredJob& job) {
    forget(job.id);
    next_place_ = std::max(next_place_, place + 1);
    jobs_.push_back({place, job});
  }
  void forget(const RecordId& id) {
    if (const auto at = find(id); at != jobs_.end()) jobs_.erase(at);
  }
  void postpone(const RecordId& id, Time due) {
    if (const auto at = find(id); at != jobs_.end()) at->job.due_at = due;
  }
  std::uint64_t next_place() const { return next_place_; }
  std::size_t size() const { return jobs_.size(); }

  Ids due(const TakeRequest& request, Time now) const {
    return ids_of(
        [&](const Kept& kept) {
          return kept.job.open() && kept.job.route == request.route && kept.job.due_at + request.overdue <= now &&
                 is_first(kept);
        },
        request.limit, [](const Kept& kept) { return std::pair(kept.job.due_at, kept.place); });
  }
  Ids expired(Time now) const {
    return ids_of([&](const Kept& kept) { return kept.job.expires_at <= now; }, jobs_.size(),
                  [](const Kept& kept) { return kept.job.id; });
  }
  std::uint64_t count(const std::string& route, JobState state) const {
    return static_cast<std::uint64_t>(std::count_if(jobs_.begin(), jobs_.end(), [&](const Kept& kept) {
      return kept.job.route == route && kept.job.state == state;
    }));
  }

 private:
  struct Kept {
    std::uint64_t place;
    StoredJob job;
  };

  std::vector<Kept>::iterator find(const RecordId& id) {
    return std::find_if(jobs_.begin(), jobs_.end(), [&](const Kept& kept) { return kept.job.id == id; });
  }
  bool is_first(const Kept& kept) const {
    return !kept.job.ordered || std::none_of(jobs_.begin(), jobs_.end(), [&](const Kept& other) {
      return other.job.ordered && other.job.open() && order_of(other.job.id) == order_of(kept.job.id) &&
             other.place < kept.place;
    });
  }
  template <class Fits, class SortBy>
  Ids ids_of(Fits fits, std::size_t limit, SortBy sort_by) const {
    std::vector<Kept> found;
    std::copy_if(jobs_.begin(), jobs_.end(), std::back_inserter(found), fits);
    std::sort(found.begin(), found.end(), [&](const Kept& a, const Kept& b) { return sort_by(a) < sort_by(b); });
    Ids ids;
    for (const Kept& kept : found) {
      if (ids.size() < limit) ids.push_back(kept.job.id);
    }
    return ids;
  }

  std::vector<Kept> jobs_;
  std::uint64_t next_place_ = 1;
};

TEST(JobIndex, AnswersAsALookAtEveryJobWould) {
  std::mt19937 random(7);
  const auto below = [&](std::uint32_t limit) { return static_cast<std::uint8_t>(random() % limit); };
  JobIndex index;
  EveryJob model;
  for (int step = 0; step < 2000; ++step) {
    // Waves, so that the index grows and shrinks.
    const bool filling = step / 250 % 2 == 0;
    StoredJob job;
    job.id = numbered(below(120));
    job.id.bytes[31] = job.id.bytes[5] % 4; // the order
    job.ordered = below(3) > 0;
    job.state = filling || below(3) == 0 ? std::array{JobState::waiting, JobState::taken, JobState::dead}[below(3)]
                                         : std::array{JobState::delivered, JobState::dropped}[below(2)];
    job.due_at = at(below(50));
    job.expires_at = at(below(100));
    job.route = std::array{"a", "b", "c"}[below(3)];
    switch (below(8)) {
      case 0:
        index.forget(job.id);
        model.forget(job.id);
        break;
      case 1:
        index.postpone(job.id, job.due_at);
        model.postpone(job.id, job.due_at);
        break;
      case 2:
        if (!job.open() && job.state != JobState::dead) break;
        index.add_at(model.next_place() + 1, job);
        model.add_at(model.next_place() + 1, job);
        break;
      default:
        index.note(job);
        model.note(job);
    }
    const Time now = at(below(60));
    for (const std::string route : {"a", "b", "c"}) {
      const TakeRequest request{route, below(20), {}, Millis{below(3)}};
      ASSERT_EQ(index.due(request, now), model.due(request, now)) << step;
      for (const JobCount& found : index.count()) ASSERT_EQ(found.count, model.count(found.route, found.state)) << step;
    }
    Ids expired = index.expired(now, 1000);
    std::sort(expired.begin(), expired.end());
    ASSERT_EQ(expired, model.expired(now)) << step;
    ASSERT_EQ(index.size(), model.size()) << step;
    ASSERT_EQ(index.list({}, now).size(), model.size()) << step;
  }
}

TEST(FlatTable, EntriesOfOneHashAreToldApart) {
  constexpr std::uint32_t kApart = 0x0200'0010; // two of them in one part of the table, in the same cell
  FlatTable table;
  const auto is = [](std::uint32_t wanted) { return [wanted](std::uint32_t number) { return number == wanted; }; };
  EXPECT_EQ(table.find(5, is(1)), kNoEntry);
  for (std::uint32_t number = 0; number < 100; ++number) table.insert(number % 3 * kApart, number);
  for (std::uint32_t number = 0; number < 100; number += 2) table.erase(number % 3 * kApart, number);
  table.replace(kApart, 1, 1000);
  for (std::uint32_t number = 2; number < 100; ++number) {
    EXPECT_EQ(table.find(number % 3 * kApart, is(number)), number % 2 == 0 ? kNoEntry : number);
  }
  EXPECT_EQ(table.find(kApart, is(1)), kNoEntry);
  EXPECT_EQ(table.find(kApart, is(1000)), 1000U);
}

} // namespace
} // namespace oncekey
