#include "core/job_transitions.h"

#include <gtest/gtest.h>

#include <limits>

namespace oncekey {
namespace job_transitions_test { // beside transitions_test, which has a clock and a request of its own
namespace {

using Kind = AttemptEnd::Kind;

constexpr Time kNow{Millis{1'700'000'000'000}};
constexpr Millis kLease{10'000};
constexpr Millis kRetention{400'000};
constexpr std::uint64_t kFence = 7;

StageRequest request() {
  StageRequest request;
  request.id.bytes[0] = 1;
  request.fingerprint.bytes[0] = 2;
  request.route = "hook /hooks/stripe";
  request.key = "evt_1";
  request.retention = kRetention;
  return request;
}

StoredJob staged() { return *stage_step(std::nullopt, request(), kNow); }
TakeRequest to_take(Millis overdue = Millis{0}) { return {"hook /hooks/stripe", 1, kLease, overdue}; }
StoredJob taken() { return *take_job_step(staged(), to_take(), kFence, kNow); }
StoredJob ended(AttemptEnd end) { return *end_attempt_step(taken(), kFence, std::move(end), kNow); }
StoredJob delivered(bool keep_message = true) {
  AttemptEnd end;
  end.result = AttemptResult{204, "No Content"};
  end.keep_message = keep_message;
  return ended(std::move(end));
}
StoredJob dead() {
  AttemptEnd end;
  end.kind = Kind::dead;
  end.result = AttemptResult{0, "connection refused"};
  end.why_dead = "not delivered within 72h";
  return ended(std::move(end));
}

TEST(JobTransitions, AStagedJobWaitsAndIsDueAtOnce) {
  const StoredJob job = staged();
  EXPECT_EQ(job.state, JobState::waiting);
  EXPECT_EQ(job.staged_at, kNow);
  EXPECT_EQ(job.due_at, kNow);
  EXPECT_EQ(job.expires_at, kNow + kRetention);
  EXPECT_EQ(job.attempts, 0U);
  EXPECT_TRUE(job.message_kept);
}

TEST(JobTransitions, AJobThatIsThereIsNotStagedAgainUntilItHasExpired) {
  for (const StoredJob& job : {staged(), taken(), delivered(), dead()}) {
    EXPECT_FALSE(stage_step(job, request(), kNow)) << to_string(job.state);
    EXPECT_TRUE(stage_step(job, request(), job.expires_at)) << to_string(job.state);
  }
}

TEST(JobTransitions, ADelayLongerThanTheRetentionPutsTheExpiryOff) {
  StageRequest late = request();
  late.delay = kRetention * 2;
  EXPECT_EQ(stage_step(std::nullopt, late, kNow)->expires_at, kNow + kRetention * 2);
}

TEST(JobTransitions, OnlyOpenJobsThatAreDueCanBeTaken) {
  StoredJob later = staged();
  later.due_at = kNow + Millis{1};
  EXPECT_FALSE(take_job_step(later, to_take(), kFence, kNow));
  EXPECT_TRUE(take_job_step(later, to_take(), kFence, later.due_at));
  EXPECT_FALSE(take_job_step(taken(), to_take(), kFence, kNow + kLease - Millis{1}));
  EXPECT_TRUE(take_job_step(taken(), to_take(), kFence, kNow + kLease));
  for (const StoredJob& job : {delivered(), dead()}) {
    EXPECT_FALSE(take_job_step(job, to_take(), kFence, kNow + kLease)) << to_string(job.state);
  }
  EXPECT_FALSE(take_job_step(std::nullopt, to_take(), kFence, kNow));
  EXPECT_FALSE(take_job_step(staged(), to_take(), kFence, kNow + kRetention));
}

TEST(JobTransitions, ATakenJobOutlivesItsLeaseByAnother) {
  const StoredJob job = *take_job_step(staged(), to_take(), kFence, kNow + kRetention - Millis{1});
  EXPECT_EQ(job.expires_at, kNow + kRetention - Millis{1} + 2 * kLease);
}

TEST(JobTransitions, WhatAnEarlierProcessHadTakenIsDueAtOnce) {
  EXPECT_TRUE(is_at_work(taken(), kNow, kFence));
  EXPECT_FALSE(is_at_work(taken(), kNow, kFence + 1));
  EXPECT_FALSE(take_job_step(taken(), to_take(), kFence, kNow, kFence));
  EXPECT_TRUE(take_job_step(taken(), to_take(), kFence + 1, kNow, kFence + 1));
}

TEST(JobTransitions, ACourierThatAsksForOverdueJobsGetsNoFreshOnes) {
  const Millis overdue{60'000};
  EXPECT_FALSE(take_job_step(staged(), to_take(overdue), kFence, kNow + overdue - Millis{1}));
  EXPECT_TRUE(take_job_step(staged(), to_take(overdue), kFence, kNow + overdue));
  EXPECT_FALSE(take_job_step(taken(), to_take(overdue), kFence + 1, kNow, kFence + 1));
}

TEST(JobTransitions, AnAttemptIsCountedWithItsResult) {
  const StoredJob job = delivered();
  EXPECT_EQ(job.state, JobState::delivered);
  EXPECT_EQ(job.attempts, 1U);
  EXPECT_EQ(to_string(job.last().result), "204 No Content");
  EXPECT_EQ(job.last().at, kNow);
  EXPECT_EQ(job.ended_at, kNow);
  EXPECT_FALSE(delivered(false).message_kept);
}

TEST(JobTransitions, AJobThatIsGivenBackCountsNoAttempt) {
  AttemptEnd end;
  end.kind = Kind::again;
  const StoredJob job = ended(std::move(end));
  EXPECT_EQ(job.state, JobState::waiting);
  EXPECT_EQ(job.due_at, kNow);
  EXPECT_EQ(job.attempts, 0U);
}

TEST(JobTransitions, AJobToBeTriedAgainStaysUntilThen) {
  AttemptEnd end;
  end.kind = Kind::again;
  end.pause = kRetention * 2;
  const StoredJob job = ended(std::move(end));
  EXPECT_EQ(job.due_at, kNow + kRetention * 2);
  EXPECT_EQ(job.expires_at, job.due_at);
}

TEST(JobTransitions, TheCountOfAttemptsStopsAtWhatItHolds) {
  StoredJob job = taken();
  job.attempts = std::numeric_limits<std::uint32_t>::max();
  AttemptEnd end;
  end.result = AttemptResult{};
  EXPECT_EQ(end_attempt_step(job, kFence, end, kNow)->attempts, job.attempts);
}

TEST(JobTransitions, TheNewestAttemptsAreKeptWithTheirGateway) {
  StoredJob job = taken();
  for (int number = 1; number <= 12; ++number) {
    AttemptEnd end;
    end.kind = Kind::again;
    end.result = AttemptResult{500 + number, "tab\there"};
    end.gateway = number % 2 == 0 ? "eu-2" : "eu-1";
    job = *end_attempt_step(job, kFence, end, kNow + Millis{number});
    job.state = JobState::taken;
  }
  ASSERT_EQ(job.tried.size(), kAttemptsKept);
  EXPECT_EQ(job.tried.front().at, kNow + Millis{3});
  EXPECT_EQ(job.tried.front().gateway, "eu-1");
  EXPECT_EQ(to_string(job.last().result), "512 tab here");
  EXPECT_EQ(job.attempts, 12U);
}

TEST(JobTransitions, OnlyTheNewestCourierEndsAnAttemptAndOnlyOnce) {
  EXPECT_FALSE(end_attempt_step(taken(), kFence - 1, {}, kNow));
  EXPECT_TRUE(end_attempt_step(taken(), kFence, {}, kNow + kLease * 2)); // late, but no other courier has it
  EXPECT_FALSE(end_attempt_step(delivered(), kFence, {}, kNow));
  EXPECT_FALSE(end_attempt_step(taken(), kFence, {}, kNow + kRetention));
  EXPECT_FALSE(end_attempt_step(std::nullopt, kFence, {}, kNow));
}

TEST(JobTransitions, ADeadLetterSaysWhy) {
  EXPECT_EQ(dead().state, JobState::dead);
  EXPECT_EQ(dead().why_dead, "not delivered within 72h");
  EXPECT_EQ(to_string(dead().last().result), "connection refused");
  EXPECT_TRUE(dead().message_kept);
}

// Every cell: what an operator's action does to a job in each state.
TEST(JobTransitions, OperatorsActOnEveryState) {
  struct Cell {
    std::string_view name;
    std::optional<StoredJob> found;
    JobAnswer retry;
    JobAnswer drop;
  };
  StoredJob dropped = *operate_job_step(staged(), JobAction::drop, {}, kNow).write;
  StoredJob lease_over = taken();
  lease_over.due_at = kNow;
  StoredJob expired = staged();
  expired.expires_at = kNow;
  const std::vector<Cell> cells{
      {"absent", std::nullopt, JobAnswer::absent, JobAnswer::absent},
      {"expired", expired, JobAnswer::absent, JobAnswer::absent},
      {"waiting", staged(), JobAnswer::done, JobAnswer::done},
      {"taken", taken(), JobAnswer::taken, JobAnswer::taken},
      {"lease over", lease_over, JobAnswer::done, JobAnswer::done},
      {"delivered", delivered(), JobAnswer::done, JobAnswer::over},
      {"delivered, not kept", delivered(false), JobAnswer::message_gone, JobAnswer::over},
      {"dropped", dropped, JobAnswer::message_gone, JobAnswer::over},
      {"dead", dead(), JobAnswer::done, JobAnswer::done},
  };
  for (const Cell& cell : cells) {
    const JobStep retried = operate_job_step(cell.found, JobAction::retry, {}, kNow);
    EXPECT_EQ(retried.answer, cell.retry) << cell.name;
    ASSERT_EQ(retried.write.has_value(), cell.retry == JobAnswer::done) << cell.name;
    if (retried.write) {
      EXPECT_EQ(retried.write->state, JobState::waiting) << cell.name;
      EXPECT_EQ(retried.write->due_at, kNow) << cell.name;
      EXPECT_TRUE(retried.write->why_dead.empty()) << cell.name;
    }
    const JobStep gone = operate_job_step(cell.found, JobAction::drop, {}, kNow);
    EXPECT_EQ(gone.answer, cell.drop) << cell.name;
    ASSERT_EQ(gone.write.has_value(), cell.drop == JobAnswer::done) << cell.name;
    if (gone.write) {
      EXPECT_EQ(gone.write->state, JobState::dropped) << cell.name;
      EXPECT_FALSE(gone.write->message_kept) << cell.name;
    }
  }
  EXPECT_EQ(operate_job_step(taken(), JobAction::drop, {}, kNow, kFence + 1).answer, JobAnswer::done);
}

TEST(JobTransitions, AJobThatHasChangedSinceItWasSeenIsLeftAlone) {
  const StoredJob found = dead();
  const auto answer = [&](JobSeen seen) { return operate_job_step(found, JobAction::retry, seen, kNow).answer; };
  EXPECT_EQ(answer({JobState::dead, found.fence}), JobAnswer::done);
  EXPECT_EQ(answer({JobState::waiting, found.fence}), JobAnswer::changed);
  EXPECT_EQ(answer({JobState::dead, found.fence + 1}), JobAnswer::changed);
  EXPECT_FALSE(operate_job_step(found, JobAction::retry, JobSeen{JobState::waiting, 0}, kNow).write);
}

TEST(JobTransitions, AListingAsksForStateRouteIdAndTime) {
  JobListRequest request;
  const StoredJob job = taken();
  EXPECT_TRUE(is_listed(request, job, kNow));
  EXPECT_FALSE(is_listed(request, job, job.expires_at));
  request.state = JobState::waiting;
  EXPECT_FALSE(is_listed(request, job, kNow));
  EXPECT_TRUE(is_listed(request, job, job.due_at));
  request.route = "destination billing";
  EXPECT_FALSE(is_listed(request, job, job.due_at));
  request.route = job.route;
  request.id_prefix = "01";
  EXPECT_TRUE(is_listed(request, job, job.due_at));
  request.id_prefix = "02";
  EXPECT_FALSE(is_listed(request, job, job.due_at));
  request.id_prefix.clear();
  request.staged_from = job.staged_at;
  request.staged_before = job.staged_at + Millis(1);
  EXPECT_TRUE(is_listed(request, job, job.due_at));
  request.staged_before = job.staged_at;
  EXPECT_FALSE(is_listed(request, job, job.due_at));
  request.staged_before = Time::max();
  request.staged_from = job.staged_at + Millis(1);
  EXPECT_FALSE(is_listed(request, job, job.due_at));
}

} // namespace
} // namespace job_transitions_test
} // namespace oncekey
