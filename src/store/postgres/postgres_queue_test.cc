#include "store/postgres/postgres_queue.h"

#include <gtest/gtest.h>

namespace oncekey::postgres {
namespace {

auto submit(PostgresQueue& queue, std::uint8_t number, Millis patience = Millis{60'000}) {
  RecordId id;
  id.bytes.fill(number);
  AnyCall call = ClaimCall{};
  return queue.submit(id, call, deadline_in(patience), {});
}

void submit_claims(PostgresQueue& queue, std::uint8_t first, std::uint8_t last) {
  for (int number = first; number <= last; ++number) EXPECT_FALSE(submit(queue, static_cast<std::uint8_t>(number)));
}

CallBatch take_now(PostgresQueue& queue) { return queue.take(std::chrono::steady_clock::now()); }

// A queue whose one id has been given back to rest for so long.
void give_back_to_rest(PostgresQueue& queue, Millis rest) {
  submit_claims(queue, 1, 1);
  CallBatch batch = take_now(queue);
  batch[0].rest = rest;
  queue.give_back(std::move(batch));
}

TEST(PostgresQueue, WaitsForAnIdThatRests) {
  PostgresQueue long_resting;
  give_back_to_rest(long_resting, std::chrono::hours(1));
  EXPECT_TRUE(take_now(long_resting).empty());
  PostgresQueue queue;
  give_back_to_rest(queue, Millis{5});
  EXPECT_EQ(queue.take(deadline_in(Millis{10'000})).size(), 1u);
}

TEST(PostgresQueue, WaitsNoLongerThanTheBatchDelay) {
  PostgresQueue queue;
  submit_claims(queue, 1, 8);
  CallBatch batch = take_now(queue);
  for (CallGroup& group : batch) group.calls.clear();
  queue.give_back(std::move(batch), std::chrono::hours(1));
  submit_claims(queue, 11, 13);
  EXPECT_EQ(queue.take(deadline_in(Millis{60'000})).size(), 3u);
}

TEST(PostgresQueue, ThreadsShareTheCallsWhereTheyAreEnoughForBoth) {
  PostgresQueue queue;
  queue.served_by(2);
  submit_claims(queue, 1, 200);
  EXPECT_EQ(take_now(queue).size(), 100u);
  submit_claims(queue, 201, 220);
  EXPECT_EQ(take_now(queue).size(), 110u);
  PostgresQueue little;
  little.served_by(2);
  submit_claims(little, 1, kBatchIdsToShare);
  EXPECT_EQ(take_now(little).size(), kBatchIdsToShare);
}

TEST(PostgresQueue, CallsThatWaitTooLongAreTakenOut) {
  PostgresQueue queue;
  EXPECT_FALSE(submit(queue, 1, Millis{0}));
  submit_claims(queue, 2, 2);
  EXPECT_EQ(queue.take_overdue(std::chrono::steady_clock::now()).size(), 1u);
  EXPECT_EQ(take_now(queue).size(), 1u);
}

TEST(PostgresQueue, WhileThereIsAFaultNoCallWaits) {
  PostgresQueue queue;
  submit_claims(queue, 1, 1);
  EXPECT_EQ(queue.refuse_all(unavailable("down")).size(), 1u);
  const auto refused = submit(queue, 2);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->message, "down");
  queue.accept_again();
  submit_claims(queue, 3, 3);
  EXPECT_EQ(take_now(queue).size(), 1u);
}

TEST(PostgresQueue, ACallUnderWayWhenTheFaultCameMayComeBack) {
  PostgresQueue queue;
  submit_claims(queue, 1, 1);
  CallBatch batch = take_now(queue);
  EXPECT_TRUE(queue.refuse_all(unavailable("down")).empty());
  queue.give_back(std::move(batch));
  EXPECT_EQ(queue.refuse_all(unavailable("down")).size(), 1u);
}

} // namespace
} // namespace oncekey::postgres
