#include "core/decide.h"

#include "../../tests/tables/decision_table.h"
#include "core/policy_text.h"
#include "core/transitions.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

const Time kMoment{std::chrono::days(20000)};

Fingerprint fingerprint(std::uint8_t fill) {
  Fingerprint print;
  print.bytes.fill(fill);
  return print;
}

Record record_found(RecordState state) {
  Record record;
  record.state = state;
  record.fingerprint = fingerprint(1);
  record.fence = 3;
  record.first_received = kMoment - hours(1);
  record.expires_at = kMoment + hours(23);
  record.lease_until = kMoment + seconds(30);
  if (state == RecordState::completed) record.response = StoredResponse{200, "OK", {}, "body", std::nullopt};
  return record;
}

const std::vector<std::string> kStates = {"absent",          "expired",        "in_progress", "taken_over",
                                          "abandoned",       "abandoned_here", "completed",   "completed_omitted",
                                          "abandoned_rerun", "indeterminate"};

std::optional<Record> stored(const std::string& state) {
  if (state == "absent") return std::nullopt;
  if (state == "indeterminate") return record_found(RecordState::indeterminate);
  if (state == "completed") return record_found(RecordState::completed);
  if (state == "completed_omitted") {
    Record record = record_found(RecordState::completed);
    record.response->omitted = OmittedBody{1 << 30, {}, true};
    return record;
  }
  Record record = record_found(RecordState::in_progress);
  if (state == "expired") record.expires_at = kMoment;
  if (state == "taken_over") record.took_over = true;
  if (state.starts_with("abandoned")) record.lease_until = kMoment;
  if (state == "abandoned_rerun") record.rerun = true;
  return record;
}

// The claim as every store makes it, so that a cell covers the rule for the claim and the decision behind it.
ClaimAnswer claim(const Policy& policy, const std::string& state, const Fingerprint& print) {
  ClaimRequest request;
  request.fingerprint = print;
  request.lease = policy.lease;
  request.retention = policy.retention;
  request.abandoned = abandoned_rule(policy);
  const OwnerWorksHere owner = state == "abandoned_here" ? OwnerWorksHere::yes : OwnerWorksHere::no;
  return claim_step(stored(state), request, 99, kMoment, owner).answer;
}

TEST(Decide, EveryCellOfTheTable) {
  DecisionTable table("decide.txt", 4);
  for (const std::string& name : policy_names()) {
    for (const OnAbandoned rule : {OnAbandoned::hold, OnAbandoned::reexecute, OnAbandoned::probe}) {
      Policy policy = *policy_by_name(name);
      policy.on_abandoned = rule;
      for (const std::string& state : kStates) {
        for (const std::string request : {"same", "other"}) {
          const Fingerprint print = fingerprint(request == "same" ? 1 : 2);
          const Decision decision = decide(policy, print, claim(policy, state, print));
          table.expect({name, std::string(to_string(rule)), state, request}, std::string(to_string(decision.verdict)));
        }
      }
    }
  }
  table.expect_every_line_was_a_cell();
}

TEST(Decide, AMismatchIsSeenBeforeTheStateWhateverTheStateIs) {
  const Policy policy = *policy_by_name("classic");
  for (const RecordState state : {RecordState::in_progress, RecordState::completed, RecordState::indeterminate}) {
    EXPECT_EQ(decide(policy, fingerprint(9), Found{record_found(state), kMoment}).verdict, Verdict::mismatch);
  }
}

TEST(Decide, InProgressTellsTheAgeOfTheClaimAndTheRestOfItsLease) {
  Record record = record_found(RecordState::in_progress);
  record.first_received = kMoment - seconds(7);
  record.lease_until = kMoment + milliseconds(1500);
  const Decision decision = decide(*policy_by_name("classic"), fingerprint(1), Found{record, kMoment});
  EXPECT_EQ(decision.verdict, Verdict::in_progress);
  EXPECT_EQ(decision.age, seconds(7));
  EXPECT_EQ(decision.lease_left, milliseconds(1500));
}

TEST(Decide, TheAgeOfAClaimThatTookOverCountsFromTheTakeover) {
  const Policy policy = *policy_by_name("classic");
  Record record = record_found(RecordState::in_progress);
  record.first_received = kMoment - seconds(500);
  record.lease_until = kMoment - seconds(1);
  ClaimRequest request;
  request.fingerprint = fingerprint(1);
  request.lease = policy.lease;
  request.abandoned = Abandoned::take_over;
  const ClaimStep taken = claim_step(record, request, 99, kMoment, OwnerWorksHere::no);
  EXPECT_EQ(decide(policy, fingerprint(1), Found{*taken.write, kMoment + seconds(3)}).age, seconds(3));
}

TEST(Decide, AClaimFromAheadOfTheClockHasNoAge) {
  Record record = record_found(RecordState::in_progress);
  record.first_received = kMoment + milliseconds(5);
  record.lease_until = kMoment + seconds(60);
  EXPECT_EQ(decide(*policy_by_name("classic"), fingerprint(1), Found{record, kMoment}).age, Millis(0));
}

TEST(RetryAfter, IsWhatIsLeftOfTheUsualDuration) {
  EXPECT_EQ(retry_after(milliseconds(300), milliseconds(2000)), seconds(2));
  EXPECT_EQ(retry_after(milliseconds(1500), milliseconds(2000)), seconds(1));
  EXPECT_EQ(retry_after(milliseconds(0), milliseconds(40'000)), seconds(10)) << "a longer call may end earlier";
}

TEST(RetryAfter, IsHalfTheAgeWhereTheDurationIsUnknownOrPast) {
  EXPECT_EQ(retry_after(milliseconds(300), std::nullopt), seconds(1));
  EXPECT_EQ(retry_after(milliseconds(3900), std::nullopt), seconds(2));
  EXPECT_EQ(retry_after(milliseconds(3900), milliseconds(3900)), seconds(2));
  EXPECT_EQ(retry_after(milliseconds(3900), milliseconds(50)), seconds(2));
  EXPECT_EQ(retry_after(std::chrono::hours(1), std::nullopt), seconds(10));
}

TEST(RetryAfter, OfALeaseWhoseOwnerIsGoneIsItsEnd) {
  EXPECT_EQ(retry_after_lease(milliseconds(1)), seconds(1));
  EXPECT_EQ(retry_after_lease(milliseconds(1001)), seconds(2));
  EXPECT_EQ(retry_after_lease(milliseconds(59'999)), seconds(60));
}

TEST(Decide, NothingIsExecutedOnARecordThatIsNotOurs) {
  const Policy policy = *policy_by_name("classic");
  Record record = record_found(RecordState::in_progress);
  record.lease_until = kMoment;
  const Decision abandoned = decide(policy, fingerprint(1), Found{record, kMoment});
  EXPECT_EQ(abandoned.verdict, Verdict::in_progress);
  EXPECT_EQ(abandoned.lease_left, Millis(0));
}

TEST(Decide, ARecordMarkedForRerunIsNotHeldAgain) {
  Policy policy = *policy_by_name("stripe-v1");
  Record record = record_found(RecordState::in_progress);
  record.lease_until = kMoment - seconds(1);
  EXPECT_EQ(decide(policy, fingerprint(1), Found{record, kMoment}).verdict, Verdict::hold);
  record.rerun = true;
  EXPECT_EQ(decide(policy, fingerprint(1), Found{record, kMoment}).verdict, Verdict::in_progress);
}

TEST(Decide, AnAnswerStillOnItsWayIsNotReplayed) {
  Record record = record_found(RecordState::completed);
  record.response->omitted = OmittedBody{0, {}, false};
  EXPECT_EQ(decide(*policy_by_name("classic"), fingerprint(1), Found{record, kMoment}).verdict,
            Verdict::answer_not_kept);
}

TEST(Decide, AStreamIsReplayedOnceItIsWhole) {
  Record record = record_found(RecordState::completed);
  record.response->stream = StreamMark::begun;
  EXPECT_EQ(decide(*policy_by_name("classic"), fingerprint(1), Found{record, kMoment}).verdict,
            Verdict::answer_not_kept);
  record.response->stream = StreamMark::whole;
  EXPECT_EQ(decide(*policy_by_name("classic"), fingerprint(1), Found{record, kMoment}).verdict, Verdict::replay);
}

} // namespace
} // namespace oncekey
