// What only an embedded store on disk can get wrong. All that every store promises is in tests/conformance.
#include "store/rocksdb/store_on_disk.h"

namespace oncekey::rocksdb_tests {
namespace {

TEST_F(RocksdbStoreTest, NothingIsVisibleBeforeItIsDurable) {
  FaultyFiles& files = open_on_faulty_files();
  ASSERT_TRUE(claim(1));
  files.hold_syncs();
  std::promise<void> answered;
  store_->claim(claim_of(2), [&](const Result<ClaimAnswer>&) { answered.set_value(); });
  files.wait_for_a_sync(); // the batch is in the log's file and its sync has not returned
  EXPECT_FALSE(find(2));
  std::future<void> answer = answered.get_future();
  EXPECT_EQ(answer.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  files.let_all_through();
  answer.wait();
  EXPECT_TRUE(find(2));
  store_.reset();
}

TEST_F(RocksdbStoreTest, AFailedSyncAcknowledgesNothingIsNotTriedAgainAndSaysWhy) {
  FaultyFiles& files = open_on_faulty_files();
  ASSERT_TRUE(claim(1));
  files.sync_fails = true;
  std::atomic<int> answers = 0;
  store_->claim(claim_of(2), [&](const Result<ClaimAnswer>&) { ++answers; });
  EXPECT_THAT(fatal_reason_.get_future().get(), HasSubstr("the disk went bad"));
  files.sync_fails = false; // a disk that pretends to be well again is not believed
  const Result<ClaimAnswer> later = claim(3);
  ASSERT_FALSE(later);
  EXPECT_EQ(later.fault().kind, FaultKind::unavailable);
  EXPECT_FALSE(complete(1, "late"));
  EXPECT_FALSE(store_->healthy());
  store_.reset();
  EXPECT_EQ(answers, 0);
  EXPECT_EQ(fatal_calls_, 1);
  EXPECT_EQ(files.failed_syncs, 1);
}

TEST_F(RocksdbStoreTest, KillNineLosesNothingThatWasAcknowledged) {
  OtherProcess other("DISABLED_OtherProcessCompletesKeys", path_);
  std::optional<std::uint64_t> last;
  while (const std::optional<std::uint64_t> acknowledged = other.next_number()) {
    last = acknowledged;
    if (*last == 200) other.kill(); // what it said before is still in the pipe, and counts
  }
  ASSERT_TRUE(last);
  ASSERT_GE(*last, 200u);
  open();
  for (std::uint64_t i = 0; i <= *last; ++i) {
    const std::optional<Found> found = find(i);
    ASSERT_TRUE(found) << i;
    ASSERT_EQ(found->record->response->body, "answer " + std::to_string(i));
  }
}

// What the other process does. Not tests: run by name, with the directory and a pipe from the environment.

TEST_F(RocksdbStoreTest, DISABLED_OtherProcessHoldsTheStore) {
  path_ = OtherProcess::given_path();
  open();
  OtherProcess::report(0);
  while (true) ::pause();
}

TEST_F(RocksdbStoreTest, DISABLED_OtherProcessCompletesKeys) {
  path_ = OtherProcess::given_path();
  open();
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    ASSERT_TRUE(claim(i));
    ASSERT_TRUE(complete(i, "answer " + std::to_string(i)));
    OtherProcess::report(i);
  }
}

// The writer.

TEST_F(RocksdbStoreTest, CallsMadeDuringASyncShareTheNextOne) {
  FaultyFiles& files = open_on_faulty_files();
  ASSERT_TRUE(claim(1));
  files.hold_syncs();
  std::atomic<int> answers = 0;
  std::promise<void> all;
  const auto count = [&](const Result<ClaimAnswer>& answer) {
    EXPECT_TRUE(answer);
    if (++answers == 101) all.set_value();
  };
  const std::uint64_t before = store_->stats().syncs;
  store_->claim(claim_of(2), count);
  files.wait_for_a_sync();
  for (std::uint64_t i = 0; i < 100; ++i) store_->claim(claim_of(100 + i), count);
  files.let_all_through();
  all.get_future().wait();
  EXPECT_EQ(store_->stats().syncs - before, 2u);
  store_.reset();
}

TEST_F(RocksdbStoreTest, CallsOnOneKeyInOneBatchSeeEachOther) {
  FaultyFiles& files = open_on_faulty_files();
  ASSERT_TRUE(claim(1));
  files.hold_syncs();
  store_->claim(claim_of(2), [](const Result<ClaimAnswer>&) {});
  files.wait_for_a_sync();

  std::promise<Result<ClaimAnswer>> first;
  std::promise<Result<FenceAnswer>> completed;
  std::promise<Result<ClaimAnswer>> second;
  StoredResponse response;
  response.status = 200;
  response.body = "within the batch";
  store_->claim(claim_of(7), [&](Result<ClaimAnswer> answer) { first.set_value(std::move(answer)); });
  store_->complete({id_of(7), fence_of(1) + 2}, response,
                   [&](Result<FenceAnswer> answer) { completed.set_value(std::move(answer)); });
  store_->claim(claim_of(7), [&](Result<ClaimAnswer> answer) { second.set_value(std::move(answer)); });
  files.let_all_through();
  EXPECT_TRUE(std::holds_alternative<Claimed>(*first.get_future().get()));
  EXPECT_EQ(*completed.get_future().get(), FenceAnswer::done);
  const Result<ClaimAnswer> found = second.get_future().get();
  ASSERT_TRUE(std::holds_alternative<Found>(*found));
  EXPECT_EQ(std::get<Found>(*found).record->response->body, "within the batch");
  store_.reset();
}

TEST_F(RocksdbStoreTest, AClaimThatLookedBeforeABatchDoesNotMissWhatTheBatchWrote) {
  FaultyFiles& files = open_on_faulty_files();
  ASSERT_TRUE(claim(1));
  files.hold_syncs();
  store_->claim(claim_of(2), [](const Result<ClaimAnswer>&) {});
  files.wait_for_a_sync();
  // The next batch claims and completes 7, so that nothing of it stays in the writer's memory.
  store_->claim(claim_of(7), [](const Result<ClaimAnswer>&) {});
  store_->complete({id_of(7), fence_of(1) + 2}, {}, [](const Result<FenceAnswer>&) {});
  files.let_one_through();
  files.wait_for_a_sync();
  // This claim looks while that batch is not visible yet, and is decided after it.
  std::promise<Result<ClaimAnswer>> late;
  store_->claim(claim_of(7), [&](Result<ClaimAnswer> answer) { late.set_value(std::move(answer)); });
  files.let_all_through();
  const Result<ClaimAnswer> answer = late.get_future().get();
  ASSERT_TRUE(answer);
  EXPECT_TRUE(std::holds_alternative<Found>(*answer)) << "it would have been executed twice";
  store_.reset();
}

TEST_F(RocksdbStoreTest, AFullQueueRefusesNewClaimsAndStillTakesAnswers) {
  FaultyFiles& files = open_on_faulty_files();
  ASSERT_TRUE(claim(1));
  files.hold_syncs();
  store_->claim(claim_of(2), [](const Result<ClaimAnswer>&) {});
  files.wait_for_a_sync();
  std::atomic<std::size_t> refused = 0;
  for (std::uint64_t i = 0; i < QueueLimits{}.calls_max + 10; ++i) {
    store_->renew({id_of(1), 1}, kLease, [&](const Result<FenceAnswer>& answer) { refused += answer ? 0 : 1; });
  }
  EXPECT_EQ(refused, 0u);
  const Result<ClaimAnswer> answer = claim(3);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.fault().kind, FaultKind::unavailable);
  EXPECT_THAT(answer.fault().message, HasSubstr("overloaded"));
  files.let_all_through();
  ASSERT_TRUE(complete(1, "in the end"));
  store_.reset();
}

} // namespace
} // namespace oncekey::rocksdb_tests
