// What the layer does with a store below it that keeps everything it was given: a stand-in that shows what arrives.
// That it behaves as every store does is the conformance suite's.
#include "store/common/sealing_store.h"

#include "core/job_store.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace oncekey {
namespace {

using testing::HasSubstr;

constexpr std::string_view kCard = "4242424242424242";

std::string line(int id, char digit) { return std::to_string(id) + " " + std::string(64, digit) + "\n"; }
std::unique_ptr<const SealingKeys> keys(const std::string& lines) { return *SealingKeys::parse(lines, "keys"); }

// One record and one job.
class OneRecord final : public Store, public JobStore {
 public:
  Record record;
  StoredJob job;
  Message message;
  std::string browsed;

  void claim(ClaimRequest request, Done<ClaimAnswer> done) override {
    if (record.fence != 0) return done(ClaimAnswer(Found{record, Time{}}));
    record.fence = 7;
    record.key = request.key;
    record.target = request.target;
    record.context = request.context;
    done(ClaimAnswer(Claimed{7, false, Time{}, {}}));
  }
  void find(const RecordId& /*id*/, Interest /*interest*/, Done<std::optional<Found>> done) override {
    done(std::optional(Found{record, Time{}}));
  }
  void by_fence(FenceCall call) override {
    if (call.verb == FenceVerb::complete) {
      record.state = RecordState::completed;
      record.response = std::move(call.response);
    }
    call.done(FenceAnswer::done);
  }
  void operate(const RecordId& /*id*/, OperatorAction /*action*/, StoredResponse response,
               Done<OperatorAnswer> done) override {
    record.response = std::move(response);
    done(OperatorAnswer::done);
  }
  void list(const ListRequest& /*request*/, Done<std::vector<Listed>> done) override {
    done(std::vector{Listed{RecordId{}, record}});
  }
  void browse(const BrowseRequest& request, Done<BrowsePage> done) override {
    browsed = request.key;
    done(BrowsePage{{Listed{RecordId{}, record}}});
  }
  void count_waiting(Done<WaitingKeys> done) override { done(WaitingKeys{}); }
  Time now() const override { return Time{}; }
  const Secret& secret() const override { return secret_; }
  Durability durability() const override { return Durability::none; }
  Status healthy() const override { return ok_status(); }
  StoreStats stats() const override { return {}; }

  JobStore& jobs() override { return *this; }
  void stage(StageRequest request, Done<StageAnswer> done) override {
    job.id = request.id;
    job.key = request.key;
    message = request.message;
    done(StageAnswer{true, request.fingerprint});
  }
  void take(const TakeRequest& /*request*/, Done<std::vector<TakenJob>> done) override {
    done(std::vector{TakenJob{job, message, Time{}}});
  }
  void end_attempt(const Ownership& /*owner*/, AttemptEnd /*end*/, Done<FenceAnswer> done) override {
    done(FenceAnswer::done);
  }
  void find(const RecordId& /*id*/, Done<std::optional<FoundJob>> done) override {
    done(std::optional(FoundJob{job, message, Time{}}));
  }
  void operate(const RecordId& /*id*/, const std::string& /*route*/, JobAction /*action*/,
               std::optional<JobSeen> /*seen*/, Done<JobAnswer> done) override {
    done(JobAnswer::done);
  }
  void list(const JobListRequest& /*request*/, Done<JobPage> done) override { done(JobPage{{job}}); }
  void count(Done<std::vector<JobCount>> done) override { done(std::vector<JobCount>{}); }

 private:
  Secret secret_{};
};

class SealingStoreTest : public ::testing::Test {
 protected:
  SealingStoreTest() {
    auto store = std::make_unique<OneRecord>();
    below_ = store.get();
    store_ = sealing(std::move(store), sealer_);
  }

  void claim() {
    ClaimRequest request;
    request.key = std::string(kCard);
    request.target = fmt::format("/cards/{}", kCard);
    store_->claim(std::move(request), [](const Result<ClaimAnswer>& answer) { EXPECT_TRUE(answer); });
  }
  void complete() {
    StoredResponse response;
    response.status = 201;
    response.headers.add("X-Card", std::string(kCard));
    response.body = fmt::format("paid with {}", kCard);
    store_->complete({RecordId{}, 7}, std::move(response), [](const auto& answer) { EXPECT_TRUE(answer); });
  }
  Result<Record> find() {
    Result<Record> record = unavailable("not answered");
    store_->find(RecordId{}, Interest::none, [&](const Result<std::optional<Found>>& found) {
      if (found) {
        record = *(*found)->record;
      } else {
        record = found.fault();
      }
    });
    return record;
  }
  void stage() {
    StageRequest request;
    request.key = fmt::format("evt_{}", kCard);
    request.message.target = fmt::format("http://x/{}", kCard);
    request.message.headers.add("X-Card", std::string(kCard));
    request.message.body = std::string(kCard);
    store_->jobs().stage(std::move(request), [](const auto& answer) { EXPECT_TRUE(answer); });
  }
  TakenJob take() {
    TakenJob taken;
    store_->jobs().take({}, [&](Result<std::vector<TakenJob>> jobs) { taken = std::move(jobs->front()); });
    return taken;
  }

  Sealer sealer_{keys(line(1, 'a'))};
  OneRecord* below_ = nullptr;
  std::unique_ptr<Store> store_;
};

TEST_F(SealingStoreTest, TheStoreBelowSeesNothingOfARecord) {
  claim();
  complete();
  const Record& kept = below_->record;
  ASSERT_TRUE(kept.response->sealed);
  EXPECT_EQ(kept.response->sealed->fence, 7u);
  const std::string everything =
      kept.key + kept.target + kept.response->body + kept.response->headers.lines() + kept.response->sealed->bytes;
  EXPECT_THAT(everything, testing::Not(HasSubstr(std::string(kCard))));
  const Record record = find().value();
  EXPECT_EQ(record.key, kCard);
  EXPECT_EQ(record.target, fmt::format("/cards/{}", kCard));
  EXPECT_EQ(record.response->headers.lines(), fmt::format("X-Card: {}\r\n", kCard));
  EXPECT_EQ(record.response->body, fmt::format("paid with {}", kCard));
  EXPECT_FALSE(record.response->sealed);
}

TEST_F(SealingStoreTest, AClaimThatFindsTheRecordGetsItOpened) {
  claim();
  complete();
  store_->claim({}, [](const Result<ClaimAnswer>& answer) {
    EXPECT_EQ(std::get<Found>(*answer).record->response->body, fmt::format("paid with {}", kCard));
  });
}

TEST_F(SealingStoreTest, AnAnswerMovedToAnotherOwnerIsCorrupt) {
  claim();
  complete();
  Sealed moved = *below_->record.response->sealed;
  moved.fence = 8;
  below_->record.response->sealed = std::make_shared<const Sealed>(moved);
  const Result<Record> found = find();
  ASSERT_FALSE(found);
  EXPECT_EQ(found.fault().kind, FaultKind::corrupt);
  EXPECT_THAT(found.fault().message, HasSubstr("the answer of key 000000000000 cannot be read"));
}

TEST_F(SealingStoreTest, WithoutItsKeyARecordIsFoundAndStaysSealed) {
  claim();
  complete();
  sealer_.use(keys(line(2, 'b')));
  const Record record = find().value();
  ASSERT_TRUE(record.response->sealed);
  EXPECT_EQ(record.response->status, 201);
  EXPECT_EQ(record.target, "sealed with key 1");
}

TEST_F(SealingStoreTest, ARotatedKeySealsTheNextAndOpensTheLast) {
  claim();
  sealer_.use(keys(line(2, 'b') + line(1, 'a')));
  complete();
  EXPECT_EQ(below_->record.response->sealed->key_id, 2u);
  const Record record = find().value();
  EXPECT_EQ(record.key, kCard);
  EXPECT_EQ(record.response->body, fmt::format("paid with {}", kCard));
}

TEST_F(SealingStoreTest, AnOperatorsAnswerIsSealedToo) {
  StoredResponse response;
  response.body = std::string(kCard);
  store_->operate(RecordId{}, OperatorAction::complete, response, [](const auto& answer) { EXPECT_TRUE(answer); });
  EXPECT_TRUE(below_->record.response->sealed);
  EXPECT_EQ(find().value().response->body, kCard);
}

TEST_F(SealingStoreTest, ASearchByTheKeyGoesByWhatStandsInItsPlace) {
  claim();
  BrowseRequest request;
  request.key = std::string(kCard);
  store_->browse(request, [](const Result<BrowsePage>& page) { EXPECT_EQ(page->lines.front().record.key, kCard); });
  EXPECT_EQ(below_->browsed, below_->record.key);
  EXPECT_EQ(below_->browsed.size(), 32u);
}

TEST_F(SealingStoreTest, RecordsOfBeforeAreReadAsTheyAre) {
  below_->record.key = "plain";
  below_->record.response.emplace().body = "plain";
  EXPECT_EQ(find().value().response->body, "plain");
  below_->job.key = "sealed:by hand";
  EXPECT_EQ(take().job.key, "sealed:by hand");
}

TEST_F(SealingStoreTest, TheStoreBelowSeesNothingOfAJob) {
  stage();
  const std::string everything = below_->job.key + below_->message.target + below_->message.headers.lines() +
                                 below_->message.body + below_->message.sealed->bytes;
  EXPECT_THAT(everything, testing::Not(HasSubstr(std::string(kCard))));
  const TakenJob taken = take();
  EXPECT_FALSE(taken.unreadable);
  EXPECT_EQ(taken.job.key, fmt::format("evt_{}", kCard));
  EXPECT_EQ(taken.message.target, fmt::format("http://x/{}", kCard));
  EXPECT_EQ(taken.message.headers.lines(), fmt::format("X-Card: {}\r\n", kCard));
  EXPECT_EQ(taken.message.body, kCard);
  store_->jobs().list(
      {}, [](const Result<JobPage>& page) { EXPECT_EQ(page->jobs.front().key, fmt::format("evt_{}", kCard)); });
}

TEST_F(SealingStoreTest, AJobWithoutItsKeyIsNotDeliveredAndNotGivenUp) {
  stage();
  sealer_.use(keys(line(2, 'b')));
  const TakenJob taken = take();
  ASSERT_TRUE(taken.unreadable);
  EXPECT_EQ(taken.unreadable->kind, FaultKind::unavailable) << "a courier tries those again";
  store_->jobs().find(RecordId{}, [](const Result<std::optional<FoundJob>>& found) {
    EXPECT_FALSE((*found)->message);
    EXPECT_TRUE((*found)->unreadable);
  });
}

} // namespace
} // namespace oncekey
