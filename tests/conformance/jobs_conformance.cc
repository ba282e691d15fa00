// The part of the suite that is about staged work.
#include "store_conformance.h"

#include <algorithm>
#include <atomic>
#include <map>

namespace oncekey {
namespace {

using Kind = AttemptEnd::Kind;

TEST_P(JobsConformance, AStagedJobIsHandedOutWithItsMessage) {
  EXPECT_TRUE(std::holds_alternative<Claimed>(stage(1, Millis{0}, std::string("a\0b", 3))));
  const std::vector<TakenJob> taken = take();
  ASSERT_EQ(taken.size(), 1U);
  const Record& record = taken[0].record;
  EXPECT_EQ(taken[0].id, job(1));
  EXPECT_TRUE(record.staged);
  EXPECT_FALSE(record.resting);
  EXPECT_EQ(record.key, "evt_1");
  EXPECT_EQ(record.target, "http://127.0.0.1:9090/events");
  ASSERT_TRUE(record.response);
  EXPECT_EQ(record.response->body, std::string("a\0b", 3));
  EXPECT_EQ(record.response->headers.get("content-type"), "application/json");
  EXPECT_GT(record.lease_until, taken[0].now);
}

TEST_P(JobsConformance, ARepetitionFindsTheJobAndStagesNothing) {
  stage(1);
  const ClaimAnswer again = stage(1);
  ASSERT_TRUE(std::holds_alternative<Found>(again));
  EXPECT_TRUE(std::get<Found>(again).record->staged);
  EXPECT_EQ(take().size(), 1U);
  EXPECT_TRUE(take().empty());
}

TEST_P(JobsConformance, ARepetitionOfACompletedJobStagesNothing) {
  stage(1);
  EXPECT_EQ(end(take().at(0), Kind::completed), FenceAnswer::done);
  EXPECT_TRUE(std::holds_alternative<Found>(stage(1)));
  EXPECT_TRUE(take().empty());
  EXPECT_EQ(look(job(1))->record->state, RecordState::completed);
}

TEST_P(JobsConformance, NobodyGetsAJobThatSomebodyHas) {
  stage(1);
  ASSERT_EQ(take().size(), 1U);
  EXPECT_TRUE(take().empty());
}

TEST_P(JobsConformance, AJobWhoseTakerIsGoneIsHandedOutAgainAndTheFirstIsFencedOut) {
  stage(1);
  const TakenJob first = take().at(0);
  advance(kLease + blink());
  const std::vector<TakenJob> second = take();
  ASSERT_EQ(second.size(), 1U);
  EXPECT_GT(second[0].record.fence, first.record.fence);
  EXPECT_EQ(end(first, Kind::completed), FenceAnswer::lost);
  EXPECT_EQ(end(second[0], Kind::completed), FenceAnswer::done);
}

TEST_P(JobsConformance, AnAttemptMayEndLateWhileNobodyElseHasTheJob) {
  stage(1);
  const TakenJob taken = take().at(0);
  advance(kLease + blink());
  EXPECT_EQ(end(taken, Kind::completed), FenceAnswer::done);
  EXPECT_TRUE(take().empty());
}

TEST_P(JobsConformance, AJobToBeTriedAgainIsDueAfterThePauseWithItsNewMessage) {
  stage(1);
  const TakenJob taken = take().at(0);
  EXPECT_EQ(end(taken.id, taken.record.fence, Kind::again, Millis{30'000}, "second"), FenceAnswer::done);
  EXPECT_TRUE(look(job(1))->record->resting);
  EXPECT_TRUE(take().empty());
  advance(Millis{30'000} + blink());
  const std::vector<TakenJob> again = take();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].record.response->body, "second");
  EXPECT_EQ(end(taken, Kind::completed), FenceAnswer::lost);
}

TEST_P(JobsConformance, AnAttemptEndsOnce) {
  stage(1);
  const TakenJob taken = take().at(0);
  EXPECT_EQ(end(taken, Kind::again), FenceAnswer::done);
  EXPECT_EQ(end(taken, Kind::completed), FenceAnswer::lost);
}

TEST_P(JobsConformance, ADelayedJobIsNotDueBefore) {
  stage(1, Millis{60'000});
  EXPECT_TRUE(take().empty());
  advance(Millis{60'000} + blink());
  EXPECT_EQ(take().size(), 1U);
}

TEST_P(JobsConformance, ADeadLetterWaitsForAnOperator) {
  stage(1);
  EXPECT_EQ(end(take().at(0), Kind::dead), FenceAnswer::done);
  advance(kLease * 2);
  EXPECT_TRUE(take().empty());
  EXPECT_EQ(look(job(1))->record->state, RecordState::indeterminate);
  EXPECT_TRUE(std::holds_alternative<Found>(stage(1)));

  EXPECT_EQ(operate(job(1), OperatorAction::rerun), OperatorAnswer::done);
  const std::vector<TakenJob> again = take();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].record.response->body, "event");
}

TEST_P(JobsConformance, AnOperatorSendsACompletedJobOnItsWayAgain) {
  stage(1);
  end(take().at(0), Kind::completed);
  EXPECT_EQ(operate(job(1), OperatorAction::complete), OperatorAnswer::completed);
  EXPECT_EQ(operate(job(1), OperatorAction::rerun), OperatorAnswer::done);
  ASSERT_EQ(take().size(), 1U);
}

TEST_P(JobsConformance, AnOperatorNeedNotWaitForAPauseButForSomebodyAtWork) {
  stage(1);
  const TakenJob taken = take().at(0);
  EXPECT_EQ(operate(job(1), OperatorAction::rerun), OperatorAnswer::live);
  end(taken, Kind::again, Millis{100'000});
  EXPECT_EQ(operate(job(1), OperatorAction::rerun), OperatorAnswer::done);
  EXPECT_EQ(take().size(), 1U);
}

TEST_P(JobsConformance, AJobThatAnOperatorDropsIsNeverTakenAndStaysKnown) {
  stage(1);
  stage(2);
  EXPECT_EQ(operate(job(1), OperatorAction::complete), OperatorAnswer::done);
  const std::vector<TakenJob> taken = take();
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].id, job(2));
  EXPECT_TRUE(std::holds_alternative<Found>(stage(1)));
}

TEST_P(JobsConformance, AReleasedJobCanBeStagedAfresh) {
  stage(1);
  EXPECT_EQ(operate(job(1), OperatorAction::release), OperatorAnswer::done);
  EXPECT_TRUE(take().empty());
  EXPECT_TRUE(std::holds_alternative<Claimed>(stage(1)));
  EXPECT_EQ(take().size(), 1U);
}

TEST_P(JobsConformance, TheVerbsOfClaimsDoNothingToJobs) {
  stage(1);
  const TakenJob taken = take().at(0);
  const Ownership owner{taken.id, taken.record.fence};
  const auto ask = [&](auto call) { return *wait_for<FenceAnswer>(call); };
  EXPECT_EQ(ask([&](auto done) { store().renew(owner, kLease, done); }), FenceAnswer::lost);
  EXPECT_EQ(ask([&](auto done) { store().complete(owner, StoredResponse{}, done); }), FenceAnswer::lost);
  EXPECT_EQ(ask([&](auto done) { store().release(owner, done); }), FenceAnswer::lost);
  EXPECT_EQ(ask([&](auto done) { store().hold(owner, Holder::owner, done); }), FenceAnswer::lost);
  EXPECT_EQ(end(taken, Kind::completed), FenceAnswer::done);
}

TEST_P(JobsConformance, AClaimNeverTakesAJobOver) {
  stage(1);
  ClaimRequest request;
  request.id = job(1);
  request.fingerprint = print(1);
  request.lease = kLease;
  request.retention = kRetention;
  request.abandoned = Abandoned::take_over;
  const Result<ClaimAnswer> answer = wait_for<ClaimAnswer>([&](auto done) { store().claim(request, done); });
  ASSERT_TRUE(answer);
  EXPECT_TRUE(std::holds_alternative<Found>(*answer));
  EXPECT_EQ(take().size(), 1U);
}

TEST_P(JobsConformance, NoMoreThanTheLimitAreTaken) {
  for (std::uint64_t number = 1; number <= 20; ++number) stage(number);
  std::size_t taken = 0;
  for (int call = 0; call < 200 && taken < 20; ++call) {
    TakeRequest request{kRoute, 3, kLease};
    const Result<std::vector<TakenJob>> some =
        wait_for<std::vector<TakenJob>>([&](auto done) { store().take(request, done); });
    ASSERT_TRUE(some);
    taken += some->size();
  }
  EXPECT_EQ(taken, 20U);
}

TEST_P(JobsConformance, JobsOfAnotherRouteAreLeftToOthers) {
  stage(1);
  TakeRequest other{"hook /hooks/github", 10, kLease};
  for (int call = 0; call < 20; ++call) {
    const Result<std::vector<TakenJob>> taken =
        wait_for<std::vector<TakenJob>>([&](auto done) { store().take(other, done); });
    ASSERT_TRUE(taken);
    EXPECT_TRUE(taken->empty());
  }
  EXPECT_EQ(take().size(), 1U);
}

TEST_P(JobsConformance, AJobTakenInItsLastMomentsOutlivesItsTaker) {
  stage(1);
  advance(kRetention - kLease / 2);
  ASSERT_EQ(take().size(), 1U);
  advance(kLease + blink());
  EXPECT_EQ(take().size(), 1U);
}

TEST_P(JobsConformance, AJobThatHasExpiredAndComesAgainHasOnePlace) {
  stage(100);
  advance(kRetention + kRetention);
  EXPECT_TRUE(take().empty());
  EXPECT_EQ(store().stats().jobs, 0U); // nothing waits, or this store does not count
  stage(100);
  stage(101);
  if (!reopen()) GTEST_SKIP() << "keeps nothing over a restart";
  const std::vector<TakenJob> first = take(1);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].record.key, "evt_100");
  EXPECT_EQ(end(first[0], Kind::completed), FenceAnswer::done);
  if (!reopen()) return;
  const std::vector<TakenJob> second = take(1);
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].record.key, "evt_101");
}

TEST_P(JobsConformance, JobsOfOneOrderGoOneAfterAnother) {
  for (const std::uint64_t number : {100, 101, 102}) stage(number);
  stage(1);
  std::vector<TakenJob> taken = take();
  ASSERT_EQ(taken.size(), 2U); // the first of the order, and the one without
  std::vector<std::string> seen;
  for (int round = 0; round < 3; ++round) {
    const auto ordered = std::find_if(taken.begin(), taken.end(), [](const auto& job) { return job.record.ordered; });
    ASSERT_NE(ordered, taken.end()) << round;
    seen.push_back(ordered->record.key);
    EXPECT_EQ(end(*ordered, Kind::completed), FenceAnswer::done);
    taken = take();
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"evt_100", "evt_101", "evt_102"}));
}

TEST_P(JobsConformance, AnOrderWaitsForAJobThatIsTriedAgainAndNotForADeadOne) {
  for (const std::uint64_t number : {100, 101}) stage(number);
  const TakenJob first = take().at(0);
  EXPECT_EQ(end(first, Kind::again, Millis{50'000}), FenceAnswer::done);
  EXPECT_TRUE(take().empty());
  advance(Millis{50'000} + blink());
  const std::vector<TakenJob> again = take();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].id, first.id);
  EXPECT_EQ(end(again[0], Kind::dead), FenceAnswer::done);
  const std::vector<TakenJob> next = take();
  ASSERT_EQ(next.size(), 1U);
  EXPECT_EQ(next[0].record.key, "evt_101");
}

TEST_P(JobsConformance, AnExpiredJobIsForgotten) {
  stage(100);
  advance(kRetention + kRetention);
  EXPECT_TRUE(take().empty());
  stage(101); // does not stand behind the one that is gone
  for (int round = 0; round < 10; ++round) {
    const std::vector<TakenJob> taken = take();
    if (taken.empty()) continue;
    EXPECT_EQ(taken.at(0).record.key, "evt_101");
    return;
  }
  ADD_FAILURE() << "the job behind an expired one was never handed out";
}

TEST_P(JobsConformance, JobsAreListedApart) {
  stage(1);
  const ClaimAnswer claimed = claim(2);
  ListRequest request;
  request.staged = true;
  const auto list = [&] {
    const Result<std::vector<Listed>> listed =
        wait_for<std::vector<Listed>>([&](auto done) { store().list(request, done); });
    return listed ? *listed : std::vector<Listed>{};
  };
  const std::vector<Listed> jobs = list();
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_EQ(jobs[0].record.key, "evt_1");
  EXPECT_TRUE(jobs[0].record.response->body.empty());
  request.staged = false;
  const std::vector<Listed> others = list();
  ASSERT_EQ(others.size(), 1U);
  EXPECT_FALSE(others[0].record.staged);
}

TEST_P(JobsConformance, JobsSurviveARestartInTheirOrder) {
  for (const std::uint64_t number : {102, 100, 101}) stage(number);
  stage(1);
  const std::vector<TakenJob> before = take();
  ASSERT_EQ(before.size(), 2U);
  for (const TakenJob& job : before) {
    if (!job.record.ordered) end(job, Kind::completed);
  }
  if (!reopen()) GTEST_SKIP() << "keeps nothing over a restart";
  EXPECT_TRUE(take().empty()); // the one taken is still leased
  advance(kLease + blink());
  std::vector<std::string> seen;
  for (int round = 0; round < 3; ++round) {
    const std::vector<TakenJob> taken = take();
    ASSERT_EQ(taken.size(), 1U) << round;
    seen.push_back(taken[0].record.key);
    end(taken[0], Kind::completed);
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"evt_102", "evt_100", "evt_101"}));
}

TEST_P(JobsConformance, ManyTakersGetEachJobOnce) {
  constexpr std::uint64_t kJobs = 60;
  for (std::uint64_t number = 1; number <= kJobs; ++number) stage(number);
  std::mutex mutex;
  std::map<std::string, int> times;
  std::vector<std::thread> takers;
  for (int taker = 0; taker < 8; ++taker) {
    takers.emplace_back([&] {
      for (int call = 0; call < 40; ++call) {
        TakeRequest request{kRoute, 4, kLease * 100};
        const Result<std::vector<TakenJob>> taken =
            wait_for<std::vector<TakenJob>>([&](auto done) { store().take(request, done); });
        if (!taken) continue;
        const std::lock_guard lock(mutex);
        for (const TakenJob& job : *taken) ++times[job.record.key];
      }
    });
  }
  for (std::thread& taker : takers) taker.join();
  EXPECT_EQ(times.size(), kJobs);
  for (const auto& [key, count] : times) EXPECT_EQ(count, 1) << key;
}

} // namespace
} // namespace oncekey
