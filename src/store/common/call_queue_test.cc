#include "store/common/call_queue.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

constexpr std::size_t kAll = 1000; // ids of a batch
constexpr std::size_t kBodyBytesMax = 1000;

class WaitingCalls : public ::testing::Test {
 protected:
  using Queue = CallQueue<QueuedCall>;
  using Batch = Queue::Batch;

  static RecordId id(std::uint8_t number) {
    RecordId id;
    id.bytes.fill(number);
    return id;
  }
  static std::unique_ptr<QueuedCall> call(std::uint8_t number, AnyCall what) {
    auto call = std::make_unique<QueuedCall>();
    call->what = std::move(what);
    call->id = id(number);
    return call;
  }
  void claim(std::uint8_t number) { queue_.add(call(number, ClaimCall{})); }
  void claim(std::uint8_t first, std::uint8_t last) {
    for (int number = first; number <= last; ++number) claim(static_cast<std::uint8_t>(number));
  }
  void complete(std::uint8_t number, std::size_t bytes = 1) {
    FenceCall completion;
    completion.verb = FenceVerb::complete;
    completion.response.body.assign(bytes, 'x');
    queue_.add(call(number, std::move(completion)));
  }
  void find(std::uint8_t number, Interest interest) { queue_.add(call(number, FindCall{id(number), interest, {}})); }

  bool leaves(std::size_t enough = kAll) {
    const std::optional<Deadline> departure = queue_.departure(now_, enough);
    return departure && *departure <= now_;
  }
  Batch take(std::size_t ids_max = kAll) { return leaves(ids_max) ? queue_.take(ids_max, kBodyBytesMax) : Batch{}; }
  // Gives back a batch whose calls were all answered.
  void answer(Batch batch) {
    for (Queue::Group& group : batch) group.calls.clear();
    now_ += kRoundTrip;
    queue_.give_back(std::move(batch), kRoundTrip, now_);
  }
  static bool is_claim(const Batch& batch) { return std::holds_alternative<ClaimCall>(batch.at(0).calls.at(0)->what); }

  static constexpr std::chrono::microseconds kRoundTrip{300};
  Queue queue_;
  Deadline now_ = Deadline{} + std::chrono::hours(1);
};

TEST_F(WaitingCalls, AllThatWaitLeaveTogether) {
  EXPECT_FALSE(queue_.departure(now_, kAll));
  claim(1, 5);
  EXPECT_EQ(take().size(), 5u);
  EXPECT_TRUE(take().empty());
}

TEST_F(WaitingCalls, ALonelyCallLeavesAtOnceEveryTime) {
  for (int round = 0; round < 3; ++round) {
    claim(1);
    Batch batch = take();
    EXPECT_EQ(batch.size(), 1u);
    answer(std::move(batch));
  }
}

TEST_F(WaitingCalls, WhatIsTakenOutLeavesNoIdsBehind) {
  claim(1, 3);
  EXPECT_TRUE(queue_.has_ids());
  EXPECT_EQ(queue_.take_out([](const auto&) { return true; }).size(), 3u);
  EXPECT_FALSE(queue_.has_ids());
}

TEST_F(WaitingCalls, OfAnIdUnderWayTheNextWaitsForItsTurn) {
  claim(1);
  Batch first = take();
  complete(1);
  EXPECT_TRUE(take().empty());
  answer(std::move(first));
  EXPECT_FALSE(is_claim(take()));
}

TEST_F(WaitingCalls, OfOneKeyThatAreClaimsGoTogetherAndKeepTheirPlaceAmongOthers) {
  claim(1);
  claim(1);
  complete(1);
  claim(1);
  Batch first = take();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].calls.size(), 2u);
  answer(std::move(first));
  Batch second = take();
  ASSERT_EQ(second.at(0).calls.size(), 1u);
  EXPECT_FALSE(is_claim(second));
  answer(std::move(second));
  EXPECT_EQ(take().at(0).calls.size(), 1u);
}

TEST_F(WaitingCalls, ThatAreFindsShareOnlyWithTheSameInterest) {
  find(1, Interest::none);
  find(1, Interest::none);
  find(1, Interest::settling);
  EXPECT_EQ(take().at(0).calls.size(), 2u);
}

TEST_F(WaitingCalls, ThatWereNotAnsweredComeBackBeforeThoseThatCameLater) {
  complete(1);
  Batch batch = take();
  claim(1);
  queue_.give_back(std::move(batch), kRoundTrip, now_);
  EXPECT_FALSE(is_claim(take()));
}

TEST_F(WaitingCalls, OfAnIdThatRestsAreLeftAloneForAMoment) {
  claim(1);
  Batch batch = take();
  batch[0].rest = Millis{5};
  queue_.give_back(std::move(batch), kRoundTrip, now_);
  EXPECT_TRUE(take().empty());
  EXPECT_EQ(queue_.departure(now_, kAll), now_ + Millis{5});
  now_ += Millis{5};
  EXPECT_EQ(take().size(), 1u);
}

TEST_F(WaitingCalls, LeaveInBatchesOfLimitedIdsAndBytes) {
  claim(0, 199);
  EXPECT_EQ(take(128).size(), 128u);
  EXPECT_EQ(take(128).size(), 72u);
  for (std::uint8_t number = 201; number < 210; ++number) complete(number, kBodyBytesMax / 2);
  EXPECT_EQ(take().size(), 2u);
}

TEST_F(WaitingCalls, WaitAMomentForTheCallersThatWereJustAnswered) {
  claim(1, 8);
  answer(take());
  claim(11, 13);
  EXPECT_FALSE(leaves());
  EXPECT_EQ(queue_.missing(), 5u);
  EXPECT_EQ(queue_.departure(now_, kAll), now_ + kRoundTrip / 2);
  EXPECT_TRUE(leaves(3)) << "three are enough";
  claim(14, 18);
  EXPECT_EQ(take().size(), 8u) << "all are back, though the moment is not over";
}

TEST_F(WaitingCalls, ThatCameWhileABatchWasUnderWayDoNotStandForItsCallers) {
  claim(1, 40);
  Batch batch = take();
  claim(41, 64);
  answer(std::move(batch));
  EXPECT_FALSE(leaves());
  EXPECT_EQ(queue_.missing(), 40u);
}

TEST_F(WaitingCalls, LeaveWhenTheMomentIsOver) {
  claim(1, 8);
  answer(take());
  claim(11, 16);
  now_ += kRoundTrip / 2;
  EXPECT_EQ(take().size(), 6u);
}

TEST_F(WaitingCalls, AreTakenOutToBeRefused) {
  claim(1);
  claim(2);
  EXPECT_EQ(queue_.take_out([](const QueuedCall& call) { return call.id == id(1); }).size(), 1u);
  EXPECT_EQ(take().size(), 1u);
}

TEST_F(WaitingCalls, OfManyIdsAfterOneAnotherAreAllSent) {
  for (int round = 0; round < 5; ++round) {
    claim(1, 100);
    now_ += std::chrono::seconds(1);
    Batch batch = take();
    EXPECT_EQ(batch.size(), 100u) << round;
    answer(std::move(batch));
  }
}

TEST(QueueRoom, RefusesNewWorkFirstAndEndingsAtFourTimesTheLimit) {
  QueueRoom room({.calls_max = 2, .bytes_max = 100});
  std::vector<QueueRoom::Place> places;
  const auto admit = [&](CallKind kind, std::size_t bytes) {
    std::optional<QueueRoom::Place> place = room.admit(kind, bytes);
    if (place) places.push_back(*std::move(place));
    return place.has_value();
  };
  EXPECT_TRUE(admit(CallKind::begins_work, 0));
  EXPECT_TRUE(admit(CallKind::begins_work, 0));
  EXPECT_FALSE(admit(CallKind::begins_work, 0));
  for (int call = 2; call < 8; ++call) EXPECT_TRUE(admit(CallKind::other, 1)) << call;
  EXPECT_FALSE(admit(CallKind::other, 1));
  places.clear();
  EXPECT_TRUE(admit(CallKind::begins_work, 0));
}

TEST(QueueRoom, CountsBytesToo) {
  QueueRoom room({.calls_max = 100, .bytes_max = 100});
  std::optional<QueueRoom::Place> large = room.admit(CallKind::other, 100);
  ASSERT_TRUE(large);
  EXPECT_FALSE(room.admit(CallKind::begins_work, 0));
  std::optional<QueueRoom::Place> larger = room.admit(CallKind::other, 300);
  ASSERT_TRUE(larger);
  EXPECT_FALSE(room.admit(CallKind::other, 1));
  EXPECT_TRUE(room.admit(CallKind::other, 0)) << "a call without a body needs no bytes";
  larger.reset();
  large.reset();
  EXPECT_TRUE(room.admit(CallKind::begins_work, 0));
}

} // namespace
} // namespace oncekey
