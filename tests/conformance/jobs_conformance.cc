// The part of the suite that is about jobs.
#include "store_conformance.h"

#include <algorithm>
#include <atomic>
#include <map>

namespace oncekey {
namespace {

TEST_P(JobsConformance, AStagedJobIsHandedOutWithItsMessage) {
  StageRequest request = to_stage(1, std::string("a\0b", 3));
  request.message.method = "PUT";
  EXPECT_TRUE(stage(std::move(request)));
  const std::vector<TakenJob> taken = take();
  ASSERT_EQ(taken.size(), 1U);
  const StoredJob& it = taken[0].job;
  EXPECT_EQ(it.id, job(1));
  EXPECT_EQ(it.state, JobState::taken);
  EXPECT_EQ(it.route, kRoute);
  EXPECT_EQ(it.key, "evt_1");
  EXPECT_EQ(it.fingerprint, print(1));
  EXPECT_EQ(it.attempts, 0U);
  EXPECT_FALSE(it.ordered);
  EXPECT_TRUE(it.message_kept);
  EXPECT_TRUE(same_instant(it.due_at, taken[0].now + kLease));
  EXPECT_TRUE(same_instant(it.staged_at, taken[0].now));
  EXPECT_TRUE(same_instant(it.expires_at, taken[0].now + kRetention));
  const Message& message = taken[0].message;
  EXPECT_EQ(message.method, "PUT");
  EXPECT_EQ(message.target, "http://127.0.0.1:9090/events");
  EXPECT_EQ(message.headers.get("content-type"), "application/json");
  EXPECT_EQ(message.body, std::string("a\0b", 3));
}

TEST_P(JobsConformance, ARepetitionFindsTheJobAndStagesNothing) {
  stage(1);
  StageRequest again = to_stage(1, "another");
  again.fingerprint = print(2);
  const StageAnswer answer = value_of<StageAnswer>([&](auto done) { jobs().stage(again, std::move(done)); });
  EXPECT_FALSE(answer.staged);
  EXPECT_EQ(answer.fingerprint, print(1)) << "that of the job that is there";
  const std::vector<TakenJob> taken = take();
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].message.body, "event");
  EXPECT_TRUE(take().empty());
}

TEST_P(JobsConformance, OfManyStagingsOfOneEventOneStagesIt) {
  std::atomic<int> staged = 0;
  std::vector<std::thread> senders;
  for (int sender = 0; sender < 8; ++sender) {
    senders.emplace_back([&] { staged += stage(1) ? 1 : 0; });
  }
  for (std::thread& sender : senders) sender.join();
  EXPECT_EQ(staged, 1);
  EXPECT_EQ(take().size(), 1U);
}

TEST_P(JobsConformance, ARepetitionOfADeliveredJobStagesNothing) {
  stage(1);
  EXPECT_EQ(end(take().at(0), Kind::delivered), FenceAnswer::done);
  EXPECT_FALSE(stage(1));
  EXPECT_TRUE(take().empty());
  const std::optional<FoundJob> found = look(1);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->job.state, JobState::delivered);
  EXPECT_EQ(found->job.attempts, 1U);
  EXPECT_EQ(to_string(found->job.last().result), "204 No Content");
  EXPECT_TRUE(same_instant(found->job.last().at, found->now));
  EXPECT_TRUE(same_instant(found->job.ended_at, found->now));
  ASSERT_TRUE(found->message);
  EXPECT_EQ(found->message->body, "event");
}

TEST_P(JobsConformance, AMessageThatIsNotKeptIsDeletedWithTheDelivery) {
  stage(1);
  AttemptEnd light = ending(Kind::delivered);
  light.keep_message = false;
  EXPECT_EQ(end(take().at(0), light), FenceAnswer::done);
  const std::optional<FoundJob> found = look(1);
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->job.message_kept);
  EXPECT_FALSE(found->message);
  EXPECT_FALSE(stage(1));
  EXPECT_EQ(operate(1, JobAction::retry), JobAnswer::message_gone);
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
  EXPECT_GT(second[0].job.fence, first.job.fence);
  EXPECT_EQ(end(first, Kind::delivered), FenceAnswer::lost);
  EXPECT_EQ(end(second[0], Kind::delivered), FenceAnswer::done);
}

TEST_P(JobsConformance, AnAttemptMayEndLateWhileNobodyElseHasTheJob) {
  stage(1);
  const TakenJob taken = take().at(0);
  advance(kLease + blink());
  EXPECT_EQ(end(taken, Kind::delivered), FenceAnswer::done);
  EXPECT_TRUE(take().empty());
}

TEST_P(JobsConformance, AJobToBeTriedAgainIsDueAfterThePauseAndCountsItsAttempts) {
  stage(1);
  const TakenJob taken = take().at(0);
  EXPECT_EQ(end(taken, Kind::again, Millis{30'000}), FenceAnswer::done);
  const std::optional<FoundJob> found = look(1);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->job.state, JobState::waiting);
  EXPECT_EQ(found->job.attempts, 1U);
  EXPECT_EQ(found->job.last().result.status, 0);
  EXPECT_EQ(to_string(found->job.last().result), "connection refused");
  EXPECT_TRUE(take().empty());
  advance(Millis{30'000} + blink());
  const std::vector<TakenJob> again = take();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].job.attempts, 1U);
  EXPECT_EQ(again[0].message.body, "event");
  EXPECT_EQ(end(taken, Kind::delivered), FenceAnswer::lost);
}

TEST_P(JobsConformance, TheNewestAttemptsAreKeptEachWithItsGatewayAndAnswer) {
  constexpr int kAttempts = 12;
  stage(1);
  for (int number = 1; number <= kAttempts; ++number) {
    AttemptEnd failed = ending(Kind::again);
    // What a receiver may say: separators, bytes that are no text, and more than is kept.
    failed.result = AttemptResult{500 + number, number == 3 ? "a\tb\nc\xff" : std::string(number == 4 ? 5000 : 0, 'x')};
    failed.gateway = number % 2 == 0 ? "eu-2" : "eu-1";
    EXPECT_EQ(end(take(1).at(0), failed), FenceAnswer::done);
    AttemptEnd back; // in between, by a gateway that made no attempt
    back.kind = Kind::again;
    back.gateway = "eu-3";
    EXPECT_EQ(end(take(1).at(0), back), FenceAnswer::done);
  }
  const std::optional<FoundJob> found = look(1);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->job.attempts, 12U);
  const std::vector<Attempt>& tried = found->job.tried;
  ASSERT_EQ(tried.size(), kAttemptsKept);
  for (std::size_t at = 0; at < tried.size(); ++at) {
    EXPECT_EQ(tried[at].result.status, 503 + static_cast<int>(at));
    EXPECT_EQ(tried[at].gateway, at % 2 == 0 ? "eu-1" : "eu-2");
    EXPECT_TRUE(same_instant(tried[at].at, found->now));
    EXPECT_TRUE(at == 0 || tried[at].at >= tried[at - 1].at);
  }
  EXPECT_TRUE(tried[0].result.reason.starts_with("a b c")) << tried[0].result.reason;
  EXPECT_EQ(tried[1].result.reason.size(), 200U);
  const std::vector<TakenJob> taken = take();
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].job.tried.size(), kAttemptsKept);
}

TEST_P(JobsConformance, AJobThatIsGivenBackCountsNoAttemptAndIsDueAtOnce) {
  stage(1);
  AttemptEnd back;
  back.kind = Kind::again;
  EXPECT_EQ(end(take().at(0), back), FenceAnswer::done);
  const std::vector<TakenJob> again = take();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].job.attempts, 0U);
}

TEST_P(JobsConformance, AnAttemptEndsOnce) {
  stage(1);
  const TakenJob taken = take().at(0);
  EXPECT_EQ(end(taken, Kind::again), FenceAnswer::done);
  EXPECT_EQ(end(taken, Kind::delivered), FenceAnswer::lost);
}

TEST_P(JobsConformance, AMessageIsWrittenOnce) {
  constexpr std::uint64_t kBytes = 1 << 20;
  std::string body(kBytes, 'x');
  for (std::size_t at = 0; at < body.size(); ++at) body[at] = static_cast<char>(at * 2654435761U >> 13);
  stage(to_stage(1, body));
  const std::uint64_t before = store().stats().bytes_on_disk;
  for (int attempt = 0; attempt < 6; ++attempt) {
    const std::vector<TakenJob> taken = take(1);
    ASSERT_EQ(taken.size(), 1U) << attempt;
    EXPECT_EQ(taken[0].message.body, body);
    EXPECT_EQ(end(taken[0], Kind::again), FenceAnswer::done);
  }
  // A store that wrote it with every step would have grown by twelve times as much. Some report no size, or late.
  const std::uint64_t after = store().stats().bytes_on_disk;
  EXPECT_LT(after, before + 2 * kBytes);
}

TEST_P(JobsConformance, ADelayedJobIsNotDueBefore) {
  StageRequest later = to_stage(1);
  later.delay = Millis{60'000};
  stage(std::move(later));
  EXPECT_TRUE(take().empty());
  advance(Millis{60'000} + blink());
  EXPECT_EQ(take().size(), 1U);
}

TEST_P(JobsConformance, ADeadLetterSaysWhyAndWaitsForAnOperator) {
  stage(1);
  EXPECT_EQ(end(take().at(0), Kind::dead), FenceAnswer::done);
  advance(kLease * 2);
  EXPECT_TRUE(take().empty());
  const std::optional<FoundJob> found = look(1);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->job.state, JobState::dead);
  EXPECT_EQ(found->job.why_dead, "the receiver does not exist");
  EXPECT_EQ(to_string(found->job.last().result), "connection refused");
  EXPECT_FALSE(stage(1));

  EXPECT_EQ(operate(1, JobAction::retry), JobAnswer::done);
  EXPECT_TRUE(look(1)->job.why_dead.empty());
  const std::vector<TakenJob> again = take();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].message.body, "event");
  EXPECT_EQ(again[0].job.attempts, 1U);
}

TEST_P(JobsConformance, AJobCanBeDeadWithoutAnAttempt) {
  stage(1);
  AttemptEnd orphan;
  orphan.kind = Kind::dead;
  orphan.why_dead = "no webhook or destination of this name is configured";
  EXPECT_EQ(end(take().at(0), orphan), FenceAnswer::done);
  const std::optional<FoundJob> found = look(1);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->job.attempts, 0U);
  EXPECT_EQ(found->job.why_dead, "no webhook or destination of this name is configured");
}

TEST_P(JobsConformance, AMessageThatCannotBeReadHoldsUpNoOtherJobAndCanBeDropped) {
  for (const std::uint64_t number : {1, 2, 3}) stage(number);
  if (!damage_message(job(2))) GTEST_SKIP() << "cannot be damaged from outside";
  Keys whole;
  for (const TakenJob& taken : take()) {
    if (taken.message.body == "event") {
      whole.push_back(taken.job.key);
    } else {
      EXPECT_EQ(end(taken, Kind::dead), FenceAnswer::done);
    }
  }
  std::sort(whole.begin(), whole.end());
  EXPECT_EQ(whole, (Keys{"evt_1", "evt_3"}));
  ASSERT_TRUE(look(2));
  EXPECT_FALSE(look(2)->message);
  EXPECT_EQ(operate(2, JobAction::drop), JobAnswer::done);
}

TEST_P(JobsConformance, AnOperatorSendsADeliveredJobOnItsWayAgain) {
  stage(1);
  end(take().at(0), Kind::delivered);
  EXPECT_EQ(operate(1, JobAction::drop), JobAnswer::over);
  EXPECT_EQ(operate(1, JobAction::retry), JobAnswer::done);
  ASSERT_EQ(take().size(), 1U);
}

TEST_P(JobsConformance, AnOperatorNeedNotWaitForAPauseButForSomebodyAtWork) {
  stage(1);
  const TakenJob taken = take().at(0);
  EXPECT_EQ(operate(1, JobAction::retry), JobAnswer::taken);
  EXPECT_EQ(operate(1, JobAction::drop), JobAnswer::taken);
  end(taken, Kind::again, Millis{100'000});
  EXPECT_EQ(operate(1, JobAction::retry), JobAnswer::done);
  EXPECT_EQ(take().size(), 1U);
  EXPECT_EQ(operate(2, JobAction::retry), JobAnswer::absent);
}

TEST_P(JobsConformance, AJobThatHasChangedSinceAnOperatorSawItIsLeftAlone) {
  stage(1);
  const auto seen = [&] { return JobSeen{look(1)->job.state, look(1)->job.fence}; };
  const JobSeen staged = seen();
  end(take().at(0), Kind::dead);
  EXPECT_EQ(operate(1, JobAction::drop, staged), JobAnswer::changed);
  const JobSeen dead = seen();
  EXPECT_EQ(operate(1, JobAction::retry, dead), JobAnswer::done);
  EXPECT_EQ(operate(1, JobAction::drop, dead), JobAnswer::changed) << "another operator retries it";
  EXPECT_EQ(look(1)->job.state, JobState::waiting);
  end(take().at(0), Kind::delivered);
  EXPECT_EQ(operate(1, JobAction::retry, dead), JobAnswer::changed) << "it would be delivered twice";
  EXPECT_EQ(operate(2, JobAction::retry, dead), JobAnswer::absent);
}

TEST_P(JobsConformance, AJobThatAnOperatorDropsIsNeverTakenAndStaysKnown) {
  stage(1);
  stage(2);
  EXPECT_EQ(operate(1, JobAction::drop), JobAnswer::done);
  const std::vector<TakenJob> taken = take();
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].job.id, job(2));
  EXPECT_FALSE(stage(1));
  const std::optional<FoundJob> found = look(1);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->job.state, JobState::dropped);
  EXPECT_FALSE(found->message);
  EXPECT_EQ(operate(1, JobAction::drop), JobAnswer::over);
  EXPECT_EQ(operate(1, JobAction::retry), JobAnswer::message_gone);
}

TEST_P(JobsConformance, ClaimsAndJobsAreKeptApart) {
  stage(1);
  const std::uint64_t fence = own(1); // the same id
  const TakenJob taken = take().at(0);
  EXPECT_EQ(complete(1, fence, answer("paid")), FenceAnswer::done);
  const Ownership owner{taken.job.id, taken.job.fence};
  const auto ask = [&](auto call) { return *wait_for<FenceAnswer>(call); };
  EXPECT_EQ(ask([&](auto done) { store().renew(owner, kLease, done); }), FenceAnswer::lost);
  EXPECT_EQ(ask([&](auto done) { store().release(owner, done); }), FenceAnswer::lost);
  EXPECT_EQ(end(taken, Kind::delivered), FenceAnswer::done);
  ASSERT_TRUE(find(1));
  EXPECT_EQ(find(1)->record->response->body, "paid");
  EXPECT_EQ(look(1)->message->body, "event");
}

TEST_P(JobsConformance, NoMoreThanTheLimitAreTaken) {
  for (std::uint64_t number = 1; number <= 20; ++number) stage(number);
  std::size_t taken = 0;
  for (int call = 0; call < 200 && taken < 20; ++call) {
    const TakeRequest request{kRoute, 3, kLease, {}};
    const auto some = value_of<std::vector<TakenJob>>([&](auto done) { jobs().take(request, done); });
    EXPECT_LE(some.size(), 3U);
    taken += some.size();
  }
  EXPECT_EQ(taken, 20U);
}

TEST_P(JobsConformance, LongMessagesComeInSeveralTakes) {
  const std::string body(std::size_t{3} << 20, 'x');
  for (const std::uint64_t number : {1, 2, 3}) stage(to_stage(number, body));
  const TakeRequest request{kRoute, 10, kLease * 100, {}};
  std::size_t taken = 0;
  for (int call = 0; call < 200 && taken < 3; ++call) {
    const auto some = value_of<std::vector<TakenJob>>([&](auto done) { jobs().take(request, done); });
    const bool one_server = GetParam().name == "postgres" || GetParam().name == "redis";
    EXPECT_TRUE(some.size() < 3 || !one_server);
    taken += some.size();
  }
  EXPECT_EQ(taken, 3U);
}

TEST_P(JobsConformance, JobsOfAnotherRouteAreLeftToOthers) {
  stage(1);
  const TakeRequest other{kOther, 10, kLease, {}};
  for (int call = 0; call < 20; ++call) {
    const auto taken = value_of<std::vector<TakenJob>>([&](auto done) { jobs().take(other, done); });
    EXPECT_TRUE(taken.empty());
  }
  EXPECT_EQ(take().size(), 1U);
}

TEST_P(JobsConformance, OverdueJobsAreThoseThatHaveBeenDueForLong) {
  stage(1);
  const Millis overdue{60'000};
  EXPECT_TRUE(take(10, kRoute, overdue).empty());
  advance(overdue + blink());
  stage(2);
  const std::vector<TakenJob> taken = take(10, kRoute, overdue);
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].job.key, "evt_1");
}

TEST_P(JobsConformance, AJobTakenInItsLastMomentsOutlivesItsTaker) {
  stage(1);
  advance(kRetention - kLease / 2);
  ASSERT_EQ(take().size(), 1U);
  advance(kLease + blink());
  const std::vector<TakenJob> again = take();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].message.body, "event");
}

TEST_P(JobsConformance, AJobThatHasExpiredAndComesAgainHasOnePlace) {
  stage(100);
  advance(kRetention + kRetention);
  EXPECT_TRUE(take().empty());
  EXPECT_TRUE(counts_become({}));
  stage(100);
  stage(101);
  if (!reopen()) GTEST_SKIP() << "keeps nothing over a restart";
  const std::vector<TakenJob> first = take(1);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].job.key, "evt_100");
  EXPECT_EQ(end(first[0], Kind::delivered), FenceAnswer::done);
  if (!reopen()) return;
  const std::vector<TakenJob> second = take(1);
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].job.key, "evt_101");
}

TEST_P(JobsConformance, AnExpiredJobIsForgotten) {
  stage(100);
  advance(kRetention + kRetention);
  EXPECT_TRUE(take().empty());
  EXPECT_FALSE(look(100));
  stage(101); // does not stand behind the one that is gone
  for (int round = 0; round < 10; ++round) {
    const std::vector<TakenJob> taken = take();
    if (taken.empty()) continue;
    EXPECT_EQ(taken.at(0).job.key, "evt_101");
    return;
  }
  ADD_FAILURE() << "the job behind an expired one was never handed out";
}

TEST_P(JobsConformance, JobsAreListedByStateAndRouteAndNeverAmongTheKeys) {
  for (const std::uint64_t number : {1, 2, 3, 4}) stage(number);
  StageRequest other = to_stage(5);
  other.route = kOther;
  stage(std::move(other));
  own(6);
  for (const TakenJob& taken : take()) {
    if (taken.job.key == "evt_1") end(taken, Kind::delivered);
    if (taken.job.key == "evt_2") end(taken, Kind::dead);
    if (taken.job.key == "evt_3") end(taken, Kind::again, kRetention / 2);
  }
  EXPECT_EQ(listed(std::nullopt), (Keys{"evt_1", "evt_2", "evt_3", "evt_4", "evt_5"}));
  EXPECT_EQ(listed(std::nullopt, kOther), (Keys{"evt_5"}));
  EXPECT_EQ(listed(JobState::delivered), (Keys{"evt_1"}));
  EXPECT_EQ(listed(JobState::dead), (Keys{"evt_2"}));
  EXPECT_EQ(listed(JobState::waiting), (Keys{"evt_3", "evt_5"}));
  EXPECT_EQ(listed(JobState::waiting, kRoute), (Keys{"evt_3"}));
  EXPECT_EQ(listed(JobState::taken), (Keys{"evt_4"}));
  EXPECT_EQ(operate(2, JobAction::drop), JobAnswer::done);
  EXPECT_EQ(listed(JobState::dropped), (Keys{"evt_2"}));
  EXPECT_TRUE(listed(JobState::dead).empty());
  const auto keys = value_of<std::vector<Listed>>([&](auto done) { store().list(ListRequest{}, std::move(done)); });
  ASSERT_EQ(keys.size(), 1U);
  EXPECT_EQ(keys[0].record.key, "key-6");
  advance(kLease + blink());
  EXPECT_EQ(listed(JobState::waiting, kRoute), (Keys{"evt_3", "evt_4"})) << "one whose courier is gone waits";
}

TEST_P(JobsConformance, JobsAreListedByWhenTheyWereStaged) {
  stage(1);
  advance(Millis{1000});
  stage(2);
  advance(Millis{1000});
  stage(3);
  const auto staged_at = [&](std::uint64_t number) { return look(number)->job.staged_at; };
  for (const std::optional<JobState> state : {std::optional<JobState>(), std::optional(JobState::waiting)}) {
    JobListRequest request;
    request.state = state;
    request.limit = 1; // what does not fit must not fill the page
    request.staged_from = staged_at(2);
    request.staged_before = staged_at(3);
    const JobPage page = list(request);
    ASSERT_EQ(page.jobs.size(), 1U);
    EXPECT_EQ(page.jobs[0].key, "evt_2");
    EXPECT_TRUE(page.whole);
  }
}

TEST_P(JobsConformance, AListingOfJobsIsBoundedAndSaysSo) {
  for (std::uint64_t number = 1; number <= 5; ++number) stage(number);
  JobListRequest request;
  for (const std::optional<JobState> state : {std::optional<JobState>(), std::optional(JobState::waiting)}) {
    request.state = state;
    request.limit = 5;
    EXPECT_TRUE(list(request).whole);
    request.limit = 3;
    const JobPage some = list(request);
    EXPECT_EQ(some.jobs.size(), 3U);
    EXPECT_FALSE(some.whole);
  }
  request.state.reset();
  request.id_prefix = to_hex(job(3)).substr(0, 12);
  const JobPage one = list(request);
  ASSERT_EQ(one.jobs.size(), 1U);
  EXPECT_EQ(one.jobs[0].key, "evt_3");
  EXPECT_TRUE(one.whole);
}

TEST_P(JobsConformance, OpenAndDeadJobsAreCountedByRoute) {
  for (const std::uint64_t number : {1, 2, 3, 4, 5}) stage(number);
  StageRequest other = to_stage(6);
  other.route = kOther;
  stage(std::move(other));
  std::map<std::string, TakenJob> taken;
  for (TakenJob& each : take(4)) taken.emplace(each.job.key, std::move(each));
  ASSERT_EQ(taken.size(), 4U);
  auto at = taken.begin();
  end(at++->second, Kind::delivered);
  end(at++->second, Kind::dead);
  end(at++->second, Kind::again, Millis{1000});
  EXPECT_TRUE(counts_become({{{kRoute, JobState::waiting}, 2},
                             {{kRoute, JobState::taken}, 1},
                             {{kRoute, JobState::dead}, 1},
                             {{kOther, JobState::waiting}, 1}}));
}

TEST_P(JobsConformance, JobsSurviveARestartInTheirOrder) {
  for (const std::uint64_t number : {102, 100, 101}) stage(number);
  stage(1);
  const std::vector<TakenJob> before = take();
  ASSERT_EQ(before.size(), 2U);
  for (const TakenJob& job : before) {
    if (!job.job.ordered) end(job, Kind::delivered);
  }
  if (!reopen()) GTEST_SKIP() << "keeps nothing over a restart";
  if (shared()) {
    EXPECT_TRUE(take().empty()) << "the one taken is still leased: its courier may be alive";
    advance(kLease + blink());
  }
  Keys seen;
  for (int round = 0; round < 3; ++round) {
    const std::vector<TakenJob> taken = take();
    ASSERT_EQ(taken.size(), 1U) << round;
    EXPECT_EQ(taken[0].message.body, "event");
    seen.push_back(taken[0].job.key);
    end(taken[0], Kind::delivered);
  }
  EXPECT_EQ(seen, (Keys{"evt_102", "evt_100", "evt_101"}));
}

TEST_P(JobsConformance, WhatADeadProcessHadTakenIsDueAtOnceWhereNoOtherProcessCanHaveIt) {
  stage(1);
  const TakenJob lost = take().at(0);
  if (shared() || !reopen()) GTEST_SKIP() << "other processes may have it, or nothing is kept over a restart";
  const std::vector<TakenJob> again = take();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].job.id, lost.job.id);
  EXPECT_EQ(end(lost, Kind::delivered), FenceAnswer::lost);
  EXPECT_TRUE(take().empty()) << "now it is leased to a courier of this process";
  ASSERT_TRUE(reopen());
  EXPECT_EQ(operate(1, JobAction::drop), JobAnswer::done) << "no courier has it";
}

TEST_P(JobsConformance, DeadLettersSurviveARestart) {
  stage(1);
  EXPECT_EQ(end(take().at(0), Kind::dead), FenceAnswer::done);
  if (!reopen()) GTEST_SKIP() << "keeps nothing over a restart";
  EXPECT_TRUE(take().empty());
  EXPECT_EQ(listed(JobState::dead), (Keys{"evt_1"}));
  EXPECT_EQ(operate(1, JobAction::retry), JobAnswer::done);
  EXPECT_EQ(take().size(), 1U);
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
        const TakeRequest request{kRoute, 4, kLease * 100, {}};
        const auto taken = wait_for<std::vector<TakenJob>>([&](auto done) { jobs().take(request, done); });
        if (!taken) continue;
        const std::lock_guard lock(mutex);
        for (const TakenJob& job : *taken) ++times[job.job.key];
      }
    });
  }
  for (std::thread& taker : takers) taker.join();
  EXPECT_EQ(times.size(), kJobs);
  for (const auto& [key, count] : times) EXPECT_EQ(count, 1) << key;
}

} // namespace
} // namespace oncekey
