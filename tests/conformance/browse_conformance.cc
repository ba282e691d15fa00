// The part of the suite that is about keys as people look at them: newest first, in pages, and those that wait.
#include "store_conformance.h"

#include <algorithm>

namespace oncekey {
namespace {

// A clock that tells before from after, also where it is rounded.
constexpr Millis kMoment{5};

} // namespace

TEST_P(BrowseConformance, KeysAreShownNewestFirstPageByPage) {
  for (const std::uint64_t key : {3, 1, 5, 4, 2}) {
    own(key);
    advance(kMoment);
  }
  for (const std::size_t limit : {1, 2, 3, 100}) {
    BrowseRequest request;
    request.limit = limit;
    EXPECT_EQ(all(request), (Numbers{2, 4, 5, 1, 3})) << "in pages of " << limit;
  }
  EXPECT_EQ(browse({}).looked, 5u);
  EXPECT_TRUE(browse({}).whole);
}

TEST_P(BrowseConformance, KeysOfOneInstantAreEachShownOnce) {
  for (std::uint64_t key = 1; key <= 20; ++key) own(key);
  BrowseRequest request;
  request.limit = 3;
  Numbers shown = all(request);
  const Numbers in_one_page = all(BrowseRequest{});
  EXPECT_EQ(shown, in_one_page);
  std::sort(shown.begin(), shown.end());
  Numbers expected(20);
  for (std::uint64_t key = 1; key <= 20; ++key) expected[key - 1] = key;
  EXPECT_EQ(shown, expected);
}

TEST_P(BrowseConformance, AKeyThatCameAgainIsShownOnceAndAsNew) {
  own(1);
  advance(kMoment);
  own(2);
  advance(kMoment);
  EXPECT_EQ(release(1, fence(1)), FenceAnswer::done);
  own(1);
  EXPECT_EQ(all(KeysShown::all), (Numbers{1, 2}));
  advance(kRetention + kLease);
  EXPECT_EQ(all(KeysShown::all), Numbers{});
  own(2);
  EXPECT_EQ(all(KeysShown::all), Numbers{2});
}

TEST_P(BrowseConformance, ARecordThatOutlivesItsRetentionIsStillShown) {
  own(1);
  // Its lease is renewed past the bucket it began in.
  for (int renewed = 0; renewed < 60; ++renewed) {
    advance(kLease / 2);
    ASSERT_EQ(renew(1, fence(1), kRetention), FenceAnswer::done);
  }
  EXPECT_EQ(all(KeysShown::all), Numbers{1});
  advance(kRetention / 2);
  EXPECT_EQ(all(KeysShown::all), Numbers{1});
}

TEST_P(BrowseConformance, AKeyAndARouteNarrowTheLook) {
  for (std::uint64_t key = 1; key <= 12; ++key) own(key);
  BrowseRequest request;
  request.key = "key-7";
  EXPECT_EQ(all(request), Numbers{7});
  request.route = "/orders";
  EXPECT_EQ(all(request), Numbers{7});
  request.route = "/other";
  EXPECT_EQ(all(request), Numbers{});
  request = {};
  request.key = "key-99";
  EXPECT_EQ(all(request), Numbers{});
}

TEST_P(BrowseConformance, ALookEndsAtItsBoundAndGoesOnFromThere) {
  for (std::uint64_t key = 1; key <= 12; ++key) {
    own(key);
    advance(kMoment);
  }
  BrowseRequest request;
  request.key = "key-1";
  request.look_max = 5;
  const BrowsePage page = browse(request);
  // A store that looks in its own order may have met it, and may look at more for one round trip.
  if (page.lines.empty()) {
    EXPECT_FALSE(page.whole);
    EXPECT_LT(page.looked, 12u);
    if (!page.next) return; // it cannot go on, and has said that it has not seen all
  }
  EXPECT_EQ(all(request), Numbers{1});
}

TEST_P(BrowseConformance, WhatWaitsForAPersonIsCountedAndShown) {
  EXPECT_EQ(waiting(), (WaitingKeys{0, 0}));
  own(1);
  complete(1, fence(1), answer("done"));
  own(2);
  EXPECT_EQ(hold(2, fence(2)), FenceAnswer::done);
  EXPECT_EQ(waiting(), (WaitingKeys{0, 1}));
  EXPECT_EQ(all(KeysShown::waiting), Numbers{2});
  advance(kMoment);
  own(3);
  own(4);
  advance(kMoment);
  own(5);
  own(6);
  EXPECT_EQ(release(6, fence(6)), FenceAnswer::done);
  advance(kLease / 2);
  EXPECT_EQ(renew(4, fence(4), 10 * kLease), FenceAnswer::done);
  EXPECT_EQ(waiting(), (WaitingKeys{0, 1}));

  advance(kLease);
  EXPECT_EQ(waiting(), (WaitingKeys{2, 1}));
  EXPECT_EQ(operate(5, OperatorAction::rerun), OperatorAnswer::done);
  EXPECT_EQ(waiting(), (WaitingKeys{1, 1})) << "an operator has decided about it";
  EXPECT_EQ(all(KeysShown::waiting), (Numbers{3, 2}));
  EXPECT_EQ(all(KeysShown::abandoned), Numbers{3});
  EXPECT_EQ(all(KeysShown::indeterminate), Numbers{2});
  EXPECT_EQ(all(KeysShown::completed), Numbers{1});
  Numbers others = all(KeysShown::others);
  std::sort(others.begin(), others.end());
  EXPECT_EQ(others, (Numbers{1, 4, 5}));

  EXPECT_EQ(operate(5, OperatorAction::hold), OperatorAnswer::done);
  EXPECT_EQ(waiting(), (WaitingKeys{1, 2})) << "it waits for a decision again";
  EXPECT_EQ(all(KeysShown::indeterminate), (Numbers{5, 2}));

  EXPECT_EQ(operate(5, OperatorAction::release), OperatorAnswer::done);
  EXPECT_EQ(operate(2, OperatorAction::complete, answer("by hand")), OperatorAnswer::done);
  EXPECT_EQ(operate(3, OperatorAction::release), OperatorAnswer::done);
  EXPECT_EQ(waiting(), (WaitingKeys{0, 0}));
  EXPECT_EQ(all(KeysShown::waiting), Numbers{});
}

TEST_P(BrowseConformance, AKeyThatWasTakenOverWaitsNoLonger) {
  own(1);
  advance(2 * kLease);
  EXPECT_EQ(waiting(), (WaitingKeys{1, 0}));
  own(1, Abandoned::take_over);
  EXPECT_EQ(waiting(), (WaitingKeys{0, 0}));
  EXPECT_EQ(release(1, fence(1)), FenceAnswer::done); // left abandoned
  EXPECT_EQ(waiting(), (WaitingKeys{1, 0}));
  own(1, Abandoned::take_over);
  EXPECT_EQ(complete(1, fence(1), answer("done")), FenceAnswer::done);
  EXPECT_EQ(waiting(), (WaitingKeys{0, 0}));
}

TEST_P(BrowseConformance, WhatHasExpiredDoesNotWait) {
  own(1);
  own(2);
  EXPECT_EQ(hold(2, fence(2)), FenceAnswer::done);
  advance(2 * kLease);
  EXPECT_EQ(waiting(), (WaitingKeys{1, 1}));
  advance(kRetention);
  EXPECT_EQ(waiting(), (WaitingKeys{0, 0}));
  EXPECT_EQ(all(KeysShown::waiting), Numbers{});
  own(1);
  advance(2 * kLease);
  EXPECT_EQ(waiting(), (WaitingKeys{1, 0})) << "claimed anew, and abandoned again";
}

TEST_P(BrowseConformance, ARestartKeepsWhatWaits) {
  own(1);
  own(2);
  EXPECT_EQ(hold(2, fence(2)), FenceAnswer::done);
  // Long enough to be noted with what is written next, where a store notes such keys apart.
  advance(kLease);
  own(3);
  complete(3, fence(3), answer("done"));
  own(4);
  own(5);
  complete(5, fence(5), answer("done"));
  if (!reopen()) return;
  advance(2 * kLease);
  EXPECT_EQ(waiting(), (WaitingKeys{2, 1}));
  EXPECT_EQ(all(KeysShown::waiting).size(), 3u);
  EXPECT_EQ(operate(1, OperatorAction::release), OperatorAnswer::done);
  EXPECT_EQ(operate(2, OperatorAction::release), OperatorAnswer::done);
  EXPECT_EQ(operate(4, OperatorAction::release), OperatorAnswer::done);
  reopen();
  EXPECT_EQ(waiting(), (WaitingKeys{0, 0}));
}

TEST_P(BrowseConformance, JobsAreNotAmongTheKeys) {
  StageRequest job;
  job.id = id(1);
  job.retention = kRetention;
  value_of<StageAnswer>([&](auto done) { store().jobs().stage(std::move(job), std::move(done)); });
  own(2);
  advance(2 * kLease);
  EXPECT_EQ(all(KeysShown::all), Numbers{2});
  EXPECT_EQ(waiting(), (WaitingKeys{1, 0}));
}

} // namespace oncekey
