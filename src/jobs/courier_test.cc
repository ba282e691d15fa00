#include "jobs/courier.h"

#include <gtest/gtest.h>

#include <map>

namespace oncekey {
namespace {

using Ends = std::vector<std::pair<int, std::string>>;

// Jobs are numbers and outcomes are words. Takes and carries are answered when the test says so.
class World : public JobSource<int, std::string>, public Carrier<int, std::string> {
 public:
  void take(std::size_t limit, std::function<void(std::vector<int>)> done) override {
    asked.push_back(limit);
    if (answers_takes) return done(next_jobs(limit));
    taking = [this, limit, done = std::move(done)] { done(next_jobs(limit)); };
  }
  std::size_t room() const override { return room_left; }
  bool still_ours(const int& job) const override { return job != stale; }
  void end(int& job, std::string outcome, std::function<void()> done) override {
    ended.emplace_back(job, std::move(outcome));
    done();
  }
  void give_back(int& job, std::function<void()> done) override {
    given_back.push_back(job);
    done();
  }
  void carry(const int& job, std::function<void(std::string)> done) override { carried[job] = std::move(done); }

  void arrive(int job) {
    const auto done = std::move(carried.at(job));
    carried.erase(job);
    done("accepted");
  }
  std::vector<int> under_way() const {
    std::vector<int> jobs;
    for (const auto& [job, done] : carried) jobs.push_back(job);
    return jobs;
  }

  std::deque<int> due;
  std::size_t room_left = 100;
  int stale = -1;
  bool answers_takes = true;
  std::function<void()> taking;
  std::vector<std::size_t> asked;
  std::map<int, std::function<void(std::string)>> carried;
  Ends ended;
  std::vector<int> given_back;

 private:
  std::vector<int> next_jobs(std::size_t limit) {
    std::vector<int> jobs;
    while (!due.empty() && jobs.size() < limit) {
      jobs.push_back(due.front());
      due.pop_front();
    }
    return jobs;
  }
};

class CourierTest : public ::testing::Test {
 protected:
  // As an event loop would.
  void run_looks() {
    while (std::exchange(looks_, 0) != 0) courier_.look();
  }
  World world_;
  int looks_ = 0;
  Courier<int, std::string> courier_{world_, world_, 2, [this] { ++looks_; }};
};

TEST_F(CourierTest, DeliversSoManyAtOnceAndTakesTwiceAsMany) {
  world_.due = {1, 2, 3, 4, 5};
  courier_.look();
  EXPECT_EQ(world_.asked, (std::vector<std::size_t>{4}));
  EXPECT_EQ(world_.under_way(), (std::vector<int>{1, 2}));
  world_.arrive(2);
  EXPECT_EQ(world_.under_way(), (std::vector<int>{1, 3}));
  run_looks();
  EXPECT_EQ(world_.asked.back(), 1U);
  for (const int job : {1, 3, 4, 5}) world_.arrive(job);
  EXPECT_EQ(world_.ended.size(), 5U);
  EXPECT_EQ(world_.ended.front(), (std::pair<int, std::string>(2, "accepted")));
}

TEST_F(CourierTest, TakesSeveralAtATime) {
  Courier<int, std::string> courier(world_, world_, 8, [this] { ++looks_; });
  for (int job = 1; job <= 30; ++job) world_.due.push_back(job);
  courier.look();
  for (const int job : {1, 2, 3}) world_.arrive(job);
  courier.look();
  EXPECT_EQ(world_.asked, (std::vector<std::size_t>{16}));
  world_.arrive(4);
  courier.look();
  EXPECT_EQ(world_.asked, (std::vector<std::size_t>{16, 4}));
}

TEST_F(CourierTest, LooksAgainAsLongAsThereIsMore) {
  world_.due = {1, 2, 3, 4, 5, 6};
  courier_.look();
  for (int rounds = 0; rounds < 10 && !world_.carried.empty(); ++rounds) {
    for (const int job : world_.under_way()) world_.arrive(job);
    run_looks();
  }
  EXPECT_EQ(world_.ended.size(), 6U);
}

TEST_F(CourierTest, AsksOnceAtATimeAndAgainIfItWasPokedMeanwhile) {
  world_.answers_takes = false;
  courier_.look();
  courier_.look();
  EXPECT_EQ(world_.asked.size(), 1U);
  world_.answers_takes = true;
  world_.taking();
  EXPECT_EQ(looks_, 1);
}

TEST_F(CourierTest, TakesNothingWithoutMemory) {
  world_.due = {1};
  world_.room_left = 0;
  courier_.look();
  EXPECT_TRUE(world_.asked.empty());
  world_.room_left = 1;
  courier_.look();
  EXPECT_EQ(world_.asked, (std::vector<std::size_t>{1}));
}

TEST_F(CourierTest, AJobWhoseLeaseIsNearlyOverIsGivenBack) {
  world_.due = {1, 2};
  world_.stale = 1;
  courier_.look();
  EXPECT_EQ(world_.given_back, (std::vector<int>{1}));
  EXPECT_EQ(world_.under_way(), (std::vector<int>{2}));
}

TEST_F(CourierTest, StoppingGivesBackWhatWasNotBegunAndEndsWithWhatIsUnderWay) {
  world_.due = {1, 2, 3};
  courier_.look();
  courier_.stop();
  EXPECT_EQ(world_.given_back, (std::vector<int>{3}));
  EXPECT_FALSE(courier_.over());
  world_.arrive(1);
  world_.arrive(2);
  EXPECT_TRUE(courier_.over());
  looks_ = 0;
  courier_.look();
  EXPECT_EQ(world_.asked.size(), 1U);
}

TEST_F(CourierTest, WhatATakeBringsAfterTheStopIsGivenBack) {
  world_.due = {1};
  world_.answers_takes = false;
  courier_.look();
  courier_.stop();
  EXPECT_FALSE(courier_.over());
  world_.taking();
  EXPECT_EQ(world_.given_back, (std::vector<int>{1}));
  EXPECT_TRUE(courier_.over());
}

} // namespace
} // namespace oncekey
