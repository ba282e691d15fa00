#include "store/postgres/call_queue.h"

#include <gtest/gtest.h>

namespace oncekey::postgres {
namespace {

RecordId queued_id(std::uint8_t number) {
  RecordId id;
  id.bytes.fill(number);
  return id;
}

Call with_deadline(decltype(Call::what) what) { return {std::move(what), deadline_in(Millis{60'000}), {}}; }

Call a_claim(std::uint8_t number) {
  ClaimCall claim;
  claim.request.id = queued_id(number);
  return with_deadline(std::move(claim));
}

Call a_find(std::uint8_t number, Interest interest = Interest::none) {
  return with_deadline(FindCall{queued_id(number), interest, {}});
}

Call a_completion(std::uint8_t number, std::size_t bytes = 1) {
  return with_deadline(
      FenceCall{FenceVerb::complete, {queued_id(number), 1}, Millis{}, std::string(bytes, 'x'), false, {}});
}

Batch take_now(CallQueue& queue) { return queue.take(std::chrono::steady_clock::now()); }

void submit_claims(CallQueue& queue, std::uint8_t first, std::uint8_t last) {
  for (int number = first; number <= last; ++number) {
    EXPECT_FALSE(queue.submit(a_claim(static_cast<std::uint8_t>(number))));
  }
}

// Gives back a batch whose calls were all answered.
void finish(CallQueue& queue, Batch batch, Deadline::duration took = {}) {
  for (Group& group : batch) group.calls.clear();
  queue.give_back(std::move(batch), took);
}

TEST(CallQueue, ABatchIsWhateverWaits) {
  CallQueue queue;
  EXPECT_TRUE(take_now(queue).empty());
  for (std::uint8_t number = 1; number <= 5; ++number) EXPECT_FALSE(queue.submit(a_claim(number)));
  EXPECT_EQ(take_now(queue).size(), 5u);
  EXPECT_TRUE(take_now(queue).empty());
}

TEST(CallQueue, AnIdUnderWayWaitsForItsTurn) {
  CallQueue queue;
  EXPECT_FALSE(queue.submit(a_claim(1)));
  Batch first = take_now(queue);
  EXPECT_FALSE(queue.submit(a_completion(1)));
  EXPECT_TRUE(take_now(queue).empty());
  finish(queue, std::move(first));
  const Batch second = take_now(queue);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_FALSE(is_claim(second[0].calls[0]));
}

TEST(CallQueue, ClaimsOfOneKeyGoTogetherAndKeepTheirPlaceAmongOthers) {
  CallQueue queue;
  for (Call call : {a_claim(1), a_claim(1), a_completion(1), a_claim(1)}) EXPECT_FALSE(queue.submit(std::move(call)));
  Batch first = take_now(queue);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].calls.size(), 2u);
  finish(queue, std::move(first));
  Batch second = take_now(queue);
  ASSERT_EQ(second[0].calls.size(), 1u);
  EXPECT_FALSE(is_claim(second[0].calls[0]));
  finish(queue, std::move(second));
  EXPECT_EQ(take_now(queue)[0].calls.size(), 1u);
}

TEST(CallQueue, FindsShareOnlyWithTheSameInterest) {
  CallQueue queue;
  for (Call call : {a_find(1), a_find(1), a_find(1, Interest::settling)}) EXPECT_FALSE(queue.submit(std::move(call)));
  EXPECT_EQ(take_now(queue)[0].calls.size(), 2u);
}

TEST(CallQueue, WhatWasNotAnsweredComesBackBeforeWhatCameLater) {
  CallQueue queue;
  EXPECT_FALSE(queue.submit(a_completion(1)));
  Batch batch = take_now(queue);
  EXPECT_FALSE(queue.submit(a_claim(1)));
  queue.give_back(std::move(batch));
  EXPECT_FALSE(is_claim(take_now(queue)[0].calls[0]));
}

TEST(CallQueue, ARestingIdIsLeftAloneForAMoment) {
  CallQueue queue;
  EXPECT_FALSE(queue.submit(a_claim(1)));
  Batch batch = take_now(queue);
  batch[0].rest = Millis{5};
  queue.give_back(std::move(batch));
  EXPECT_TRUE(take_now(queue).empty());
  EXPECT_EQ(queue.take(deadline_in(Millis{10'000})).size(), 1u);
}

TEST(CallQueue, ABatchHasALimitOfIdsAndOfBytes) {
  CallQueue queue;
  for (std::uint8_t number = 0; number < 200; ++number) EXPECT_FALSE(queue.submit(a_claim(number)));
  EXPECT_EQ(take_now(queue).size(), kBatchIdsMax);
  EXPECT_EQ(take_now(queue).size(), 200 - kBatchIdsMax);
  for (std::uint8_t number = 201; number < 210; ++number) {
    EXPECT_FALSE(queue.submit(a_completion(number, kBatchBodyBytesMax / 2)));
  }
  EXPECT_EQ(take_now(queue).size(), 2u);
}

TEST(CallQueue, ThoseWhoWereJustAnsweredGetAMomentToComeBack) {
  CallQueue queue(std::chrono::hours(1)); // longer than the test
  submit_claims(queue, 1, 8);
  finish(queue, take_now(queue), std::chrono::hours(1));
  submit_claims(queue, 11, 13);
  EXPECT_TRUE(take_now(queue).empty());
  submit_claims(queue, 14, 18);
  EXPECT_EQ(take_now(queue).size(), 8u) << "all are back, though the moment is not over";
}

TEST(CallQueue, TheMomentIsOverSoon) {
  CallQueue queue;
  submit_claims(queue, 1, 8);
  finish(queue, take_now(queue), std::chrono::hours(1));
  submit_claims(queue, 11, 13);
  EXPECT_EQ(queue.take(deadline_in(Millis{60'000})).size(), 3u);
}

TEST(CallQueue, WorkersShareWhatThereIsWhereItIsEnoughForBoth) {
  CallQueue queue;
  queue.served_by(2);
  submit_claims(queue, 1, 200);
  EXPECT_EQ(take_now(queue).size(), 100u);
  submit_claims(queue, 201, 220);
  EXPECT_EQ(take_now(queue).size(), 110u);
  CallQueue little;
  little.served_by(2);
  submit_claims(little, 1, kBatchIdsToShare);
  EXPECT_EQ(take_now(little).size(), kBatchIdsToShare);
}

TEST(CallQueue, WhatWaitsTooLongIsTakenOut) {
  CallQueue queue;
  Call call = a_claim(1);
  call.send_by = std::chrono::steady_clock::now();
  EXPECT_FALSE(queue.submit(std::move(call)));
  EXPECT_FALSE(queue.submit(a_claim(2)));
  EXPECT_EQ(queue.take_overdue(std::chrono::steady_clock::now()).size(), 1u);
  EXPECT_EQ(take_now(queue).size(), 1u);
}

TEST(CallQueue, WhileThereIsAFaultNothingWaits) {
  CallQueue queue;
  EXPECT_FALSE(queue.submit(a_claim(1)));
  EXPECT_EQ(queue.refuse_all(unavailable("down")).size(), 1u);
  const auto refused = queue.submit(a_claim(2));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->fault.message, "down");
  queue.accept_again();
  EXPECT_FALSE(queue.submit(a_claim(3)));
  EXPECT_EQ(take_now(queue).size(), 1u);
}

TEST(CallQueue, ACallUnderWayWhenTheFaultCameMayComeBack) {
  CallQueue queue;
  EXPECT_FALSE(queue.submit(a_claim(1)));
  Batch batch = take_now(queue);
  EXPECT_TRUE(queue.refuse_all(unavailable("down")).empty());
  queue.give_back(std::move(batch));
  EXPECT_EQ(queue.refuse_all(unavailable("down")).size(), 1u);
}

} // namespace
} // namespace oncekey::postgres
