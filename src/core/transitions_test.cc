#include "core/transitions.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

constexpr Time kNow{Millis{1'000'000}};
constexpr Millis kLease{100};
constexpr Millis kRetention{10'000};

Fingerprint print_of(std::uint8_t byte) {
  Fingerprint fingerprint;
  fingerprint.bytes.fill(byte);
  return fingerprint;
}

ClaimRequest request(Abandoned abandoned = Abandoned::leave, std::uint8_t fingerprint = 1) {
  ClaimRequest request;
  request.fingerprint = print_of(fingerprint);
  request.lease = kLease;
  request.retention = kRetention;
  request.abandoned = abandoned;
  request.route = "/orders";
  request.key = "k-1";
  return request;
}

Record record_in(RecordState state, std::uint64_t fence = 7) {
  Record record;
  record.state = state;
  record.fingerprint = print_of(1);
  record.fence = fence;
  record.first_received = kNow - Millis{50};
  record.expires_at = kNow + Millis{5'000};
  record.lease_until = kNow + Millis{50};
  if (state == RecordState::completed) record.response.emplace().status = 201;
  return record;
}

Record abandoned_record() {
  Record record = record_in(RecordState::in_progress);
  record.lease_until = kNow;
  return record;
}

StoredResponse with_status(int status) {
  StoredResponse response;
  response.status = status;
  return response;
}

const Claimed* claimed(const ClaimStep& step) { return std::get_if<Claimed>(&step.answer); }

TEST(ClaimStep, AnAbsentRecordIsClaimedWithTheFenceGiven) {
  const ClaimStep step = claim_step(std::nullopt, request(), 99, kNow);
  ASSERT_NE(claimed(step), nullptr);
  EXPECT_EQ(claimed(step)->fence, 99u);
  EXPECT_FALSE(claimed(step)->took_over);
  EXPECT_EQ(step.write->expires_at, kNow + kRetention);
  EXPECT_EQ(step.write->lease_until, kNow + kLease);
  EXPECT_EQ(step.write->fingerprint, print_of(1));
  EXPECT_EQ(step.write->key, "k-1");
}

TEST(ClaimStep, AnExpiredRecordIsClaimedAfreshWithTheFenceGiven) {
  Record expired = record_in(RecordState::completed);
  expired.expires_at = kNow;
  const ClaimStep step = claim_step(expired, request(Abandoned::leave, 2), 99, kNow);
  ASSERT_NE(claimed(step), nullptr);
  EXPECT_EQ(claimed(step)->fence, 99u);
  EXPECT_FALSE(step.write->response);
}

TEST(ClaimStep, AnotherFingerprintIsFoundAndNeverChangedInAnyState) {
  for (const Record& record : {record_in(RecordState::in_progress), abandoned_record(),
                               record_in(RecordState::completed), record_in(RecordState::indeterminate)}) {
    const ClaimStep step = claim_step(record, request(Abandoned::take_over, 2), 99, kNow);
    EXPECT_FALSE(step.write);
    EXPECT_EQ(claimed(step), nullptr);
  }
}

TEST(ClaimStep, ALiveLeaseIsFound) {
  EXPECT_FALSE(claim_changes(record_in(RecordState::in_progress), request(Abandoned::take_over), kNow));
}

TEST(ClaimStep, AnAbandonedRecordIsLeftWhenAskedTo) {
  EXPECT_FALSE(claim_changes(abandoned_record(), request(Abandoned::leave), kNow));
}

TEST(ClaimStep, ATakeoverKeepsTheTimesOfTheFirstAndTakesTheFenceGiven) {
  const Record before = abandoned_record();
  const ClaimStep step = claim_step(before, request(Abandoned::take_over), 99, kNow);
  ASSERT_NE(claimed(step), nullptr);
  EXPECT_TRUE(claimed(step)->took_over);
  EXPECT_EQ(claimed(step)->fence, 99u);
  EXPECT_EQ(step.write->expires_at, before.expires_at);
  EXPECT_EQ(step.write->first_received, before.first_received);
  EXPECT_EQ(step.write->lease_until, kNow + kLease);
  EXPECT_TRUE(step.write->took_over);
}

TEST(ClaimStep, RerunTakesOverWhateverThePolicySaysAndOnlyOnce) {
  Record record = abandoned_record();
  record.rerun = true;
  const ClaimStep step = claim_step(record, request(Abandoned::leave), 99, kNow);
  ASSERT_NE(claimed(step), nullptr);
  EXPECT_FALSE(step.write->rerun);
}

TEST(ClaimStep, CompletedAndIndeterminateAreFound) {
  EXPECT_FALSE(claim_changes(record_in(RecordState::completed), request(Abandoned::take_over), kNow));
  EXPECT_FALSE(claim_changes(record_in(RecordState::indeterminate), request(Abandoned::take_over), kNow));
}

TEST(ClaimStep, AnOwnerAtWorkInThisProcessIsRenewedAndNeverReplaced) {
  for (const Abandoned abandoned : {Abandoned::leave, Abandoned::take_over}) {
    Record paused = abandoned_record();
    paused.rerun = abandoned == Abandoned::leave;
    const ClaimStep step = claim_step(paused, request(abandoned), 99, kNow, OwnerWorksHere::yes);
    ASSERT_TRUE(step.write);
    EXPECT_EQ(step.write->fence, 7u);
    EXPECT_EQ(step.write->lease_until, kNow + kLease);
    EXPECT_FALSE(step.write->took_over);
    ASSERT_TRUE(std::holds_alternative<Found>(step.answer));
    EXPECT_FALSE(std::get<Found>(step.answer).record->abandoned(kNow));
  }
  EXPECT_FALSE(claim_changes(abandoned_record(), request(Abandoned::take_over, 2), kNow, OwnerWorksHere::yes))
      << "another request";
  EXPECT_FALSE(claim_changes(record_in(RecordState::in_progress), request(), kNow, OwnerWorksHere::yes));
}

TEST(WorksHere, AsksAboutNothingButLeasesThatAreOver) {
  int asked = 0;
  const Store::OwnersHere owner = [&](const RecordId&) {
    ++asked;
    return std::optional<std::uint64_t>(7);
  };
  const RecordId id{};
  EXPECT_EQ(works_here(owner, id, std::nullopt, kNow), OwnerWorksHere::no);
  EXPECT_EQ(works_here(owner, id, record_in(RecordState::in_progress), kNow), OwnerWorksHere::no);
  EXPECT_EQ(works_here(owner, id, record_in(RecordState::completed), kNow), OwnerWorksHere::no);
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(works_here(owner, id, abandoned_record(), kNow), OwnerWorksHere::yes);
  Record of_another = abandoned_record();
  of_another.fence = 8;
  EXPECT_EQ(works_here(owner, id, of_another, kNow), OwnerWorksHere::no);
  EXPECT_EQ(works_here(nullptr, id, abandoned_record(), kNow), OwnerWorksHere::no);
}

TEST(FenceSteps, AnOldFenceIsLostEverywhere) {
  const Record record = record_in(RecordState::in_progress);
  EXPECT_EQ(renew_step(record, 6, kLease, kNow).answer, FenceAnswer::lost);
  EXPECT_EQ(complete_step(record, 6, with_status(200), kNow).answer, FenceAnswer::lost);
  EXPECT_EQ(release_step(record, 6, kNow).answer, FenceAnswer::lost);
  EXPECT_EQ(hold_step(record, 6, Holder::owner, kNow).answer, FenceAnswer::lost);
}

TEST(FenceSteps, ASettledAbsentOrExpiredRecordIsLostEverywhere) {
  Record expired = record_in(RecordState::in_progress);
  expired.expires_at = kNow;
  const std::optional<Record> cases[] = {std::nullopt, expired, record_in(RecordState::completed),
                                         record_in(RecordState::indeterminate)};
  for (const std::optional<Record>& record : cases) {
    EXPECT_FALSE(renew_step(record, 7, kLease, kNow).write);
    const bool held = record && record->state == RecordState::indeterminate;
    EXPECT_EQ(complete_step(record, 7, with_status(200), kNow).write.has_value(), held);
    EXPECT_FALSE(release_step(record, 7, kNow).write);
    EXPECT_FALSE(release_step(record, 7, kNow).erase);
    EXPECT_FALSE(hold_step(record, 7, Holder::owner, kNow).write);
  }
}

TEST(FenceSteps, ASlowOwnerThatNobodyReplacedMayStillRenewAndComplete) {
  const FenceStep renewed = renew_step(abandoned_record(), 7, kLease, kNow);
  EXPECT_EQ(renewed.answer, FenceAnswer::done);
  EXPECT_EQ(renewed.write->lease_until, kNow + kLease);
  const FenceStep completed = complete_step(abandoned_record(), 7, with_status(200), kNow);
  EXPECT_EQ(completed.answer, FenceAnswer::done);
  EXPECT_EQ(completed.write->state, RecordState::completed);
  EXPECT_EQ(completed.write->settled_at, kNow);
}

TEST(FenceSteps, AStreamedAnswerIsCompletedASecondTimeOnceItIsWhole) {
  Record streaming = record_in(RecordState::completed);
  streaming.response->omitted = OmittedBody{};
  StoredResponse whole = with_status(200);
  whole.omitted = OmittedBody{.length = 99, .sha256 = {}, .whole = true};
  const FenceStep step = complete_step(streaming, 7, whole, kNow);
  ASSERT_TRUE(step.write);
  EXPECT_EQ(complete_step(step.write, 7, with_status(500), kNow).answer, FenceAnswer::lost);
  EXPECT_EQ(complete_step(streaming, 6, whole, kNow).answer, FenceAnswer::lost);
}

TEST(FenceSteps, ReleaseDeletesAFirstClaimAndAbandonsATakenOverOne) {
  const FenceStep first = release_step(record_in(RecordState::in_progress), 7, kNow);
  EXPECT_EQ(first.answer, FenceAnswer::done);
  EXPECT_TRUE(first.erase);
  EXPECT_FALSE(first.write);
  Record taken_over = record_in(RecordState::in_progress);
  taken_over.took_over = true;
  const FenceStep step = release_step(taken_over, 7, kNow);
  EXPECT_EQ(step.answer, FenceAnswer::done);
  EXPECT_FALSE(step.erase);
  EXPECT_TRUE(step.write->abandoned(kNow));
  EXPECT_EQ(step.write->fingerprint, print_of(1));
}

TEST(FenceSteps, HoldMakesItIndeterminate) {
  EXPECT_EQ(hold_step(abandoned_record(), 7, Holder::owner, kNow).write->state, RecordState::indeterminate);
}

TEST(OperateStep, AnswersByState) {
  const auto answer = [](const std::optional<Record>& record) {
    return operate_step(record, OperatorAction::release, {}, kNow).answer;
  };
  Record expired = record_in(RecordState::indeterminate);
  expired.expires_at = kNow;
  EXPECT_EQ(answer(std::nullopt), OperatorAnswer::absent);
  EXPECT_EQ(answer(expired), OperatorAnswer::absent);
  EXPECT_EQ(answer(record_in(RecordState::completed)), OperatorAnswer::completed);
  EXPECT_EQ(answer(record_in(RecordState::in_progress)), OperatorAnswer::live);
  EXPECT_EQ(answer(abandoned_record()), OperatorAnswer::done);
  EXPECT_EQ(answer(record_in(RecordState::indeterminate)), OperatorAnswer::done);
}

TEST(OperateStep, EachActionSettlesAnIndeterminateRecord) {
  const Record record = record_in(RecordState::indeterminate);
  const OperatorStep released = operate_step(record, OperatorAction::release, {}, kNow);
  EXPECT_TRUE(released.erase);
  EXPECT_FALSE(released.write);
  const OperatorStep completed = operate_step(record, OperatorAction::complete, with_status(202), kNow);
  EXPECT_EQ(completed.write->state, RecordState::completed);
  EXPECT_EQ(completed.write->response->status, 202);
  const OperatorStep rerun = operate_step(record, OperatorAction::rerun, {}, kNow);
  EXPECT_TRUE(rerun.write->abandoned(kNow));
  EXPECT_TRUE(claim_changes(rerun.write, request(Abandoned::leave), kNow));
}

TEST(OperateStep, HoldKeepsAnAbandonedRecordFromRunningAgain) {
  const OperatorStep held = operate_step(abandoned_record(), OperatorAction::hold, {}, kNow);
  EXPECT_EQ(held.answer, OperatorAnswer::done);
  EXPECT_EQ(held.write->state, RecordState::indeterminate);
  EXPECT_EQ(held.write->settled_at, kNow);
  EXPECT_FALSE(claim_changes(held.write, request(Abandoned::take_over), kNow));
}

TEST(OperateStep, HoldTakesBackThatItMayRunAgain) {
  const OperatorStep rerun = operate_step(abandoned_record(), OperatorAction::rerun, {}, kNow);
  const OperatorStep held = operate_step(rerun.write, OperatorAction::hold, {}, kNow);
  EXPECT_FALSE(held.write->rerun);
  EXPECT_EQ(held.write->state, RecordState::indeterminate);
}

TEST(OperateStep, HoldLeavesWhatIsHeldAsItIs) {
  const OperatorStep held = operate_step(record_in(RecordState::indeterminate), OperatorAction::hold, {}, kNow);
  EXPECT_EQ(held.answer, OperatorAnswer::done);
  EXPECT_FALSE(held.write);
  EXPECT_FALSE(held.erase);
}

TEST(Transitions, NoRecordExpiresWhileItsLeaseIsLive) {
  Record record = abandoned_record();
  record.expires_at = kNow + Millis(10);
  ClaimRequest request;
  request.fingerprint = record.fingerprint;
  request.lease = Millis(1000);
  request.retention = Millis(2000);
  request.abandoned = Abandoned::take_over;
  const ClaimStep taken = claim_step(record, request, 99, kNow);
  EXPECT_EQ(taken.write->expires_at, kNow + Millis(1000));
  const Time later = kNow + Millis(900);
  EXPECT_FALSE(claim_changes(taken.write, request, later)) << "a second owner beside the first";
  const FenceStep renewed = renew_step(taken.write, taken.write->fence, Millis(1000), later);
  EXPECT_EQ(renewed.write->expires_at, later + Millis(1000));
}

TEST(Transitions, AFinderHoldsOnlyWhatIsStillAbandoned) {
  Record record = abandoned_record();
  EXPECT_EQ(hold_step(record, record.fence, Holder::finder, kNow).answer, FenceAnswer::done);
  record.rerun = true;
  EXPECT_EQ(hold_step(record, record.fence, Holder::finder, kNow).answer, FenceAnswer::lost);
  record.rerun = false;
  record.lease_until = kNow + Millis(1);
  EXPECT_EQ(hold_step(record, record.fence, Holder::finder, kNow).answer, FenceAnswer::lost);
  EXPECT_EQ(hold_step(record, record.fence, Holder::owner, kNow).answer, FenceAnswer::done);
}

TEST(Transitions, AnOwnerThatWasHeldMeanwhileStillBringsItsAnswer) {
  const Record record = abandoned_record();
  const FenceStep held = hold_step(record, record.fence, Holder::finder, kNow);
  EXPECT_EQ(complete_step(held.write, record.fence, with_status(201), kNow).write->state, RecordState::completed);
  EXPECT_EQ(complete_step(held.write, record.fence - 1, with_status(201), kNow).answer, FenceAnswer::lost);
}

} // namespace
} // namespace oncekey
