// What becomes of records in time: pauses of the process, operators, expiry and buckets, other processes, listings,
// restarts.
#include "store_conformance.h"

#include <atomic>
#include <barrier>

namespace oncekey {
namespace {

ListRequest at_most(std::size_t limit) {
  ListRequest request;
  request.limit = limit;
  return request;
}

ListRequest in_state(RecordState state) {
  ListRequest request;
  request.state = state;
  return request;
}

ListRequest abandoned() {
  ListRequest request;
  request.abandoned_only = true;
  return request;
}

} // namespace

// A pause of the process.

TEST_P(StoreConformance, AClaimOfTheOwnersProcessRenewsTheLeaseInsteadOfTakingOver) {
  if (shared()) GTEST_SKIP() << "done by the GuardedStore around it";
  const std::uint64_t here = own(1);
  works_here(1, here);
  advance(kLease);
  const Record record = found(1, Abandoned::take_over);
  EXPECT_EQ(record.fence, here);
  EXPECT_FALSE(record.abandoned(store().now()));
  EXPECT_FALSE(find(1)->record->abandoned(store().now())) << "not renewed";
  EXPECT_EQ(complete(1, here, answer("mine")), FenceAnswer::done);
}

TEST_P(StoreConformance, AFinderOfTheOwnersProcessCannotHold) {
  if (shared()) GTEST_SKIP() << "done by the GuardedStore around it";
  const std::uint64_t here = own(1);
  works_here(1, here);
  advance(kLease);
  EXPECT_EQ(hold(1, here, Holder::finder), FenceAnswer::lost);
  EXPECT_EQ(complete(1, here, answer("mine")), FenceAnswer::done);
}

TEST_P(StoreConformance, AnOwnerElsewhereOrOneThatIsDoneIsTakenOver) {
  const std::uint64_t gone = own(1);
  works_here(1, gone - 1);
  advance(kLease);
  own(1, Abandoned::take_over);
  works_here(1, std::nullopt);
  advance(kLease);
  own(1, Abandoned::take_over);
}

TEST_P(StoreConformance, ATakenOverClaimIsAbandonedInsteadOfReleased) {
  own(1);
  advance(kLease);
  own(1, Abandoned::take_over);
  EXPECT_EQ(release(1, fence(1)), FenceAnswer::done);
  EXPECT_TRUE(found(1, Abandoned::take_over, 2).abandoned(store().now())) << "another request must not get the key";
  own(1, Abandoned::take_over);
}

TEST_P(StoreConformance, AHeldRecordIsIndeterminateAndStays) {
  own(1);
  EXPECT_EQ(hold(1, fence(1)), FenceAnswer::done);
  advance(2 * kLease);
  EXPECT_EQ(found(1, Abandoned::take_over).state, RecordState::indeterminate);
  EXPECT_EQ(release(1, fence(1)), FenceAnswer::lost);
}

TEST_P(StoreConformance, AnOwnerThatWasHeldMeanwhileStillBringsItsAnswer) {
  own(1);
  advance(kLease);
  EXPECT_EQ(hold(1, fence(1), Holder::finder), FenceAnswer::done);
  EXPECT_EQ(complete(1, fence(1), answer("x")), FenceAnswer::done);
  EXPECT_EQ(found(1).state, RecordState::completed);
}

TEST_P(StoreConformance, AFinderCannotHoldWhatHasBeenRenewed) {
  own(1);
  advance(kLease);
  renew(1, fence(1));
  EXPECT_EQ(hold(1, fence(1), Holder::finder), FenceAnswer::lost);
  EXPECT_EQ(found(1).state, RecordState::in_progress);
}

TEST_P(StoreConformance, ARenewedRecordOutlivesItsRetention) {
  own(1);
  for (Millis passed{0}; passed <= kRetention + kLease; passed += kLease / 2) {
    ASSERT_EQ(renew(1, fence(1)), FenceAnswer::done);
    advance(kLease / 2);
  }
  EXPECT_EQ(found(1, Abandoned::take_over).fence, fence(1)) << "a second owner beside one whose lease is live";
}

TEST_P(StoreConformance, WhoeverFoundItAbandonedMayHoldItByItsFence) {
  own(1);
  advance(kLease);
  EXPECT_EQ(hold(1, found(1).fence), FenceAnswer::done);
  EXPECT_EQ(found(1).state, RecordState::indeterminate);
}

// Operators.

TEST_P(StoreConformance, AnOperatorLeavesLiveCompletedAndAbsentRecordsAlone) {
  EXPECT_EQ(operate(1, OperatorAction::release), OperatorAnswer::absent);
  own(1);
  EXPECT_EQ(operate(1, OperatorAction::release), OperatorAnswer::live);
  complete(1, fence(1), answer("kept"));
  EXPECT_EQ(operate(1, OperatorAction::rerun), OperatorAnswer::completed);
  EXPECT_EQ(found(1).response->body, "kept");
}

TEST_P(StoreConformance, AnOperatorReleasesAHeldRecord) {
  own(1);
  hold(1, fence(1));
  EXPECT_EQ(operate(1, OperatorAction::release), OperatorAnswer::done);
  EXPECT_FALSE(find(1));
  EXPECT_EQ(operate(1, OperatorAction::release), OperatorAnswer::absent);
  own(1);
}

TEST_P(StoreConformance, AnOperatorGivesAHeldRecordItsAnswer) {
  own(1);
  hold(1, fence(1));
  EXPECT_EQ(operate(1, OperatorAction::complete, answer("by hand")), OperatorAnswer::done);
  EXPECT_EQ(found(1).response->body, "by hand");
}

TEST_P(StoreConformance, AnOperatorLetsTheNextRetryOfTheSameRequestRun) {
  own(1);
  hold(1, fence(1));
  EXPECT_EQ(operate(1, OperatorAction::rerun), OperatorAnswer::done);
  EXPECT_EQ(found(1, Abandoned::take_over, 2).fence, fence(1));
  const std::uint64_t rerun = own(1, Abandoned::leave);
  advance(kLease);
  EXPECT_EQ(found(1, Abandoned::leave).fence, rerun) << "rerun counts once";
}

TEST_P(StoreConformance, AnOperatorHoldsWhatIsAbandonedSoThatNoRetryRuns) {
  own(1);
  EXPECT_EQ(operate(1, OperatorAction::hold), OperatorAnswer::live);
  advance(kLease);
  EXPECT_EQ(operate(1, OperatorAction::hold), OperatorAnswer::done);
  EXPECT_EQ(found(1, Abandoned::take_over).state, RecordState::indeterminate);
  EXPECT_EQ(operate(1, OperatorAction::hold), OperatorAnswer::done) << "held already";
  EXPECT_EQ(operate(1, OperatorAction::complete, answer("by hand")), OperatorAnswer::done);
  EXPECT_EQ(operate(1, OperatorAction::hold), OperatorAnswer::completed);
  EXPECT_EQ(operate(2, OperatorAction::hold), OperatorAnswer::absent);
}

TEST_P(StoreConformance, AnOperatorWhoHoldsARecordTakesBackThatItMayRunAgain) {
  own(1);
  advance(kLease);
  EXPECT_EQ(operate(1, OperatorAction::rerun), OperatorAnswer::done);
  EXPECT_EQ(operate(1, OperatorAction::hold), OperatorAnswer::done);
  const Record held = found(1, Abandoned::take_over);
  EXPECT_EQ(held.state, RecordState::indeterminate);
  EXPECT_FALSE(held.rerun);
}

TEST_P(StoreConformance, AGatewayThatSaysItIsAliveIsKnown) {
  GatewayBeat mine{"00c0ffee", "eu-1", "1.2", "ready", Time{Millis{1'700'000'000'000}}, {}};
  const auto known = value_of<std::vector<GatewayBeat>>([&](auto done) { store().beat(mine, std::move(done)); });
  ASSERT_EQ(known.size(), 1U);
  mine.seen = known[0].seen;
  EXPECT_EQ(known[0], mine);
  EXPECT_NE(mine.seen, Time{});
}

// Expiry and buckets.

TEST_P(StoreConformance, ARecordIsReplayedUntilItsLastInstantAndThenNeverAgain) {
  own(1);
  complete(1, fence(1), answer("kept"));
  advance(kRetention - blink());
  EXPECT_EQ(found(1).response->body, "kept");
  advance(blink());
  EXPECT_FALSE(find(1));
  own(1);
}

TEST_P(StoreConformance, AnOwnerWhoseRecordExpiredHasLostIt) {
  own(1);
  advance(kRetention);
  EXPECT_EQ(complete(1, fence(1), answer("late")), FenceAnswer::lost);
  EXPECT_EQ(renew(1, fence(1)), FenceAnswer::lost);
}

TEST_P(StoreConformance, BucketsAreDroppedWholeOnceTheyAreOver) {
  for (int step = 0; step < 12; ++step) {
    own(100 + static_cast<std::uint64_t>(step));
    advance(kRetention / 3);
  }
  EXPECT_LE(store().stats().buckets, 7u);
  advance(3 * kRetention);
  for (std::uint64_t key = 1; key <= 256; ++key) own(key); // a store may clean up as it is used
  EXPECT_LE(store().stats().buckets, 2u);
}

TEST_P(StoreConformance, AKeyClaimedOnEverySideOfEveryBorderHasOneRecord) {
  // Each round claims again a little later, so that the record wanders through the buckets.
  for (std::uint64_t round = 1; round <= 20; ++round) {
    own(1);
    // Every other time the record stays, and is claimed again when it has expired.
    if (round % 2 == 0) {
      ASSERT_EQ(release(1, fence(1)), FenceAnswer::done);
    } else {
      advance(kRetention);
    }
    advance(kRetention / 9);
  }
  own(1);
  EXPECT_EQ(list().size(), 1u);
}

TEST_P(StoreConformance, AKeyClaimedAgainForAShorterTimeHasOneRecord) {
  // The first copy's bucket ends after the second's: if it stayed, it would be found first.
  own(1);
  ASSERT_EQ(release(1, fence(1)), FenceAnswer::done);
  const std::uint64_t second = own_for(1, kRetention / 16);
  EXPECT_GT(second, fence(1));
  EXPECT_EQ(found(1).fence, second);
  EXPECT_EQ(complete(1, second, answer("short")), FenceAnswer::done);
  EXPECT_EQ(found(1).response->body, "short");
}

TEST_P(StoreConformance, AtTheBorderBetweenTwoBucketsOneOfThirtyTwoThreadsWins) {
  for (std::uint64_t round = 0; round < 10; ++round) {
    const std::uint64_t key = 500 + round;
    own(key);
    advance(kRetention); // the old copy stays in its bucket, and the claims go to a later one
    const std::int64_t width = 131'072;
    const std::int64_t expiry = (store().now() + kRetention).time_since_epoch().count();
    advance(Millis{width - expiry % width - 1});
    std::jthread tick([this] { advance(Millis{1}); });
    EXPECT_EQ(race_for(key, 32), 1);
  }
}

// Between processes.

TEST_P(StoreConformance, AClaimLeavesTheTokenOfItsAttempt) {
  if (!shared()) GTEST_SKIP() << "loses no answers";
  ClaimRequest wanted = request(1, Abandoned::leave, 1);
  wanted.token.fill(7);
  value_of<ClaimAnswer>([&](auto done) { store().claim(wanted, std::move(done)); });
  EXPECT_EQ(found(1).claimed_by, wanted.token);
  advance(kLease);
  wanted.abandoned = Abandoned::take_over;
  wanted.token.fill(8);
  value_of<ClaimAnswer>([&](auto done) { store().claim(wanted, std::move(done)); });
  EXPECT_EQ(find(1)->record->claimed_by, wanted.token);
  release(1, find(1)->record->fence);
  operate(1, OperatorAction::release);
  own(1);
  EXPECT_EQ(find(1)->record->claimed_by, ClaimToken{});
}

TEST_P(StoreConformance, AnOwnerIsToldApartByItsTokenToo) {
  if (!shared()) GTEST_SKIP() << "has no tokens";
  ClaimRequest wanted = request(1, Abandoned::leave, 1);
  wanted.token.fill(7);
  value_of<ClaimAnswer>([&](auto done) { store().claim(wanted, std::move(done)); });
  const Ownership owner{wanted.id, find(1)->record->fence, wanted.token};
  Ownership stranger = owner;
  stranger.token.fill(8);
  const auto renew_as = [&](const Ownership& as) {
    return value_of<FenceAnswer>([&](auto done) { store().renew(as, kLease, std::move(done)); });
  };
  const auto complete_as = [&](const Ownership& as) {
    return value_of<FenceAnswer>([&](auto done) { store().complete(as, answer("done"), std::move(done)); });
  };
  EXPECT_EQ(renew_as(stranger), FenceAnswer::lost);
  EXPECT_EQ(value_of<FenceAnswer>([&](auto done) { store().hold(stranger, Holder::owner, std::move(done)); }),
            FenceAnswer::lost);
  EXPECT_EQ(value_of<FenceAnswer>([&](auto done) { store().release(stranger, std::move(done)); }), FenceAnswer::lost);
  EXPECT_EQ(complete_as(stranger), FenceAnswer::lost);
  EXPECT_EQ(renew_as(owner), FenceAnswer::done);
  EXPECT_EQ(complete_as(owner), FenceAnswer::done);
  EXPECT_EQ(find(1)->record->response->body, "done");
}

TEST_P(StoreConformance, WhoeverWaitsIsToldThatTheRecordWasSettled) {
  if (!shared()) GTEST_SKIP() << "has one process, which tells itself";
  for (std::uint64_t key = 1; key <= 4; ++key) own(key);
  for (std::uint64_t key = 1; key <= 4; ++key) EXPECT_TRUE(look_and_wait(key));
  complete(1, fence(1), answer("done"));
  release(2, fence(2));
  hold(3, fence(3));
  EXPECT_TRUE(told(1));
  EXPECT_TRUE(told(2));
  EXPECT_TRUE(told(3));
  EXPECT_EQ(renew(4, fence(4)), FenceAnswer::done) << "not settled";
}

// Listing.

TEST_P(StoreConformance, AListingFiltersByStateAndAbandonmentAndStopsAtItsLimit) {
  own(1);
  own(2);
  complete(2, fence(2), answer("body"));
  own(3);
  hold(3, fence(3));
  own(4);
  release(4, fence(4));
  EXPECT_EQ(list().size(), 3u);
  EXPECT_EQ(list(at_most(2)).size(), 2u);
  const std::vector<Listed> completed = list(in_state(RecordState::completed));
  ASSERT_EQ(completed.size(), 1u);
  EXPECT_EQ(completed[0].id, id(2));
  EXPECT_EQ(completed[0].record.response->status, 201);
  EXPECT_TRUE(completed[0].record.response->body.empty());
  EXPECT_TRUE(list(abandoned()).empty());
  advance(kLease);
  EXPECT_EQ(list(abandoned()).size(), 1u);
}

TEST_P(StoreConformance, AListingFindsARecordByTheBeginningOfItsId) {
  for (std::uint64_t key = 1; key <= 40; ++key) own(key);
  const std::string hex = to_hex(id(33));
  for (const std::size_t digits : {1, 2, 3, 12, 63, 64}) {
    ListRequest request;
    request.id_prefix = hex.substr(0, digits);
    bool listed = false;
    for (const Listed& line : list(request)) {
      EXPECT_TRUE(to_hex(line.id).starts_with(request.id_prefix));
      listed = listed || line.id == id(33);
    }
    EXPECT_TRUE(listed) << digits << " digits";
  }
  ListRequest nonsense;
  nonsense.id_prefix = "xyz";
  EXPECT_TRUE(list(nonsense).empty());
}

// The store as a whole.

TEST_P(StoreConformance, TheClockFollowsTheOneItWasGiven) {
  const Time before = store().now();
  advance(Millis{123'400});
  EXPECT_TRUE(same_instant(store().now(), before + Millis{123'400}));
}

TEST_P(StoreConformance, TheSecretIsRandomAndStaysTheSame) {
  const std::array<std::uint8_t, 32> secret = store().secret();
  EXPECT_NE(secret, (std::array<std::uint8_t, 32>{}));
  reopen();
  if (store().durability() != Durability::none) {
    EXPECT_EQ(store().secret(), secret);
  }
}

TEST_P(StoreConformance, AHealthyStoreSaysSo) { EXPECT_TRUE(store().healthy()); }

TEST_P(StoreConformance, ARestartKeepsEverything) {
  own(1);
  complete(1, fence(1), answer("kept"));
  own(2);
  own(3);
  hold(3, fence(3));
  own(4);
  const std::uint64_t released = fence(4);
  release(4, fence(4));
  advance(kLease);
  const Time before = store().now();
  if (!reopen()) GTEST_SKIP() << "keeps nothing, and says so";
  EXPECT_TRUE(same_instant(store().now(), before));
  EXPECT_EQ(found(1).response->body, "kept");
  EXPECT_TRUE(found(2).abandoned(store().now()));
  EXPECT_EQ(complete(2, fence(2), answer("after the restart")), FenceAnswer::done);
  EXPECT_EQ(found(3).state, RecordState::indeterminate);
  EXPECT_GT(own(4), released) << "a number was given again";
}

TEST_P(StoreConformance, TimeThatPassesWhileItIsClosedCounts) {
  own(1);
  if (!reopen()) GTEST_SKIP() << "keeps nothing, and says so";
  advance(kRetention);
  ASSERT_TRUE(reopen());
  EXPECT_FALSE(find(1));
}

} // namespace oncekey
