#include "delivery/attempt.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

using Kind = AttemptEnd::Kind;
using std::chrono::hours;
using std::chrono::seconds;

StoredJob job(std::uint32_t attempts, bool ordered = false) {
  StoredJob job;
  job.attempts = attempts;
  job.ordered = ordered;
  return job;
}

Delivered answered(int status, std::optional<Millis> retry_after = std::nullopt) {
  return {{status, "As Answered"}, retry_after};
}

TEST(Attempt, ASuccessEndsTheJobAndKeepsTheMessageIfTold) {
  Endpoint endpoint;
  const AttemptEnd kept = end_of(endpoint, job(2), answered(204), Millis{0}, 0);
  EXPECT_EQ(kept.kind, Kind::delivered);
  ASSERT_TRUE(kept.result);
  EXPECT_EQ(to_string(*kept.result), "204 As Answered");
  EXPECT_TRUE(kept.keep_message);
  endpoint.keep_delivered = false;
  EXPECT_FALSE(end_of(endpoint, job(2), answered(200), Millis{0}, 0).keep_message);
}

TEST(Attempt, NearlyEveryOtherAnswerIsTriedAgain) {
  for (const int status : {0, 199, 300, 302, 400, 401, 404, 409, 429, 500, 503}) {
    EXPECT_EQ(end_of(Endpoint{}, job(0), answered(status), Millis{0}, 0).kind, Kind::again) << status;
  }
}

TEST(Attempt, AReceiverThatIsGoneForGoodMakesADeadLetterAtOnce) {
  const AttemptEnd gone = end_of(Endpoint{}, job(0), answered(410), Millis{0}, 0);
  EXPECT_EQ(gone.kind, Kind::dead);
  ASSERT_TRUE(gone.result);
  EXPECT_EQ(to_string(*gone.result), "410 As Answered");
  EXPECT_EQ(gone.why_dead, "the receiver wants no more tries: it answered 410");
}

TEST(Attempt, PausesDoubleUpToTheLongestAndAreJittered) {
  Endpoint endpoint;
  endpoint.first_pause = seconds(1);
  endpoint.longest_pause = seconds(60);
  const auto pause = [&](std::uint32_t attempts, double chance) {
    return end_of(endpoint, job(attempts), answered(500), Millis{0}, chance).pause;
  };
  EXPECT_EQ(pause(0, 0), seconds(1));
  EXPECT_EQ(pause(3, 0), seconds(8));
  EXPECT_GT(pause(3, 0.99), seconds(15));
  EXPECT_EQ(pause(20, 0), seconds(30));
  EXPECT_LE(pause(60000, 0.999), seconds(60));
}

TEST(Attempt, AReceiversPatienceIsHeededWithinReason) {
  EXPECT_GE(end_of(Endpoint{}, job(0), answered(503, seconds(120)), Millis{0}, 0).pause, seconds(120));
  EXPECT_LE(end_of(Endpoint{}, job(0), answered(503, hours(1000)), Millis{0}, 0).pause, hours(7));
}

TEST(Attempt, AMessageIsTriedUntilItsBudgetEndsAndThenDead) {
  Endpoint endpoint;
  endpoint.budget = seconds(10);
  const AttemptEnd last = end_of(endpoint, job(0), answered(503, hours(2)), seconds(4), 0);
  EXPECT_EQ(last.kind, Kind::again);
  EXPECT_EQ(last.pause, seconds(6));
  const AttemptEnd dead = end_of(endpoint, job(4), {{0, "connection refused"}, {}}, seconds(10), 0);
  EXPECT_EQ(dead.kind, Kind::dead);
  EXPECT_EQ(to_string(*dead.result), "connection refused");
  EXPECT_EQ(dead.why_dead, "not delivered within 10s");
  EXPECT_TRUE(dead.keep_message);
}

TEST(Attempt, AMessageThatStoodBehindOthersUntilItsBudgetEndedIsTriedSomeTimes) {
  Endpoint endpoint;
  endpoint.budget = seconds(10);
  const auto kind = [&](std::uint32_t attempts, bool ordered) {
    return end_of(endpoint, job(attempts, ordered), answered(500), hours(1), 0).kind;
  };
  EXPECT_EQ(kind(0, true), Kind::again);
  EXPECT_EQ(kind(3, true), Kind::again);
  EXPECT_EQ(kind(4, true), Kind::dead);
  EXPECT_EQ(kind(0, false), Kind::dead);
}

TEST(Attempt, PausesDoNotOverflowWithTheCount) {
  EXPECT_GT(end_of(Endpoint{}, job(4'294'967'295), answered(500), Millis{0}, 0.5).pause, Millis{0});
}

} // namespace
} // namespace oncekey
