// What only an embedded store on disk can get wrong. All that every store promises is in tests/conformance.
#include "store/journal/store_on_disk.h"

#include <rocksdb/perf_context.h>
#include <rocksdb/perf_level.h>

namespace oncekey::journal_tests {
namespace {

TEST_F(JournalStoreTest, NothingIsAnsweredBeforeItIsDurable) {
  FaultyLog& log = open_on_a_faulty_log();
  ASSERT_TRUE(claim(1));
  log.hold();
  std::promise<void> answered;
  store_->claim(claim_of(2), [&](const Result<ClaimAnswer>&) { answered.set_value(); });
  log.wait_for_a_write();
  std::promise<bool> found;
  store_->find(id_of(2), Interest::none,
               [&](const Result<std::optional<Found>>& result) { found.set_value(result->has_value()); });
  std::promise<bool> lost;
  store_->renew({id_of(2), 1}, kLease,
                [&](const Result<FenceAnswer>& result) { lost.set_value(*result == FenceAnswer::lost); });
  std::future<void> answer = answered.get_future();
  std::future<bool> seen = found.get_future();
  std::future<bool> refused = lost.get_future();
  EXPECT_EQ(answer.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  EXPECT_EQ(seen.wait_for(std::chrono::seconds(0)), std::future_status::timeout) << "it may be gone after a power cut";
  EXPECT_EQ(refused.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  log.let_all_through();
  answer.wait();
  EXPECT_TRUE(seen.get());
  EXPECT_TRUE(refused.get());
  store_.reset();
}

TEST_F(JournalStoreTest, AFailedSyncAcknowledgesNothingIsNotTriedAgainAndSaysWhy) {
  FaultyLog& log = open_on_a_faulty_log();
  ASSERT_TRUE(claim(1));
  log.fails = true;
  std::atomic<int> answers = 0;
  store_->claim(claim_of(2), [&](const Result<ClaimAnswer>&) { ++answers; });
  EXPECT_THAT(fatal_reason_.get_future().get(), HasSubstr("Input/output error"));
  log.fails = false; // a disk that pretends to be well again is not believed
  const Result<ClaimAnswer> later = claim(3);
  ASSERT_FALSE(later);
  EXPECT_EQ(later.fault().kind, FaultKind::unavailable);
  EXPECT_FALSE(complete(1, "late"));
  EXPECT_FALSE(store_->healthy());
  store_.reset();
  EXPECT_EQ(answers, 0);
  EXPECT_EQ(fatal_calls_, 1);
  EXPECT_EQ(log.failed, 1);
}

TEST_F(JournalStoreTest, KillNineLosesNothingThatWasAcknowledged) {
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

TEST_F(JournalStoreTest, DISABLED_OtherProcessHoldsTheStore) {
  path_ = OtherProcess::given_path();
  open();
  OtherProcess::report(0);
  while (true) ::pause();
}

TEST_F(JournalStoreTest, DISABLED_OtherProcessCompletesKeys) {
  path_ = OtherProcess::given_path();
  open();
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    ASSERT_TRUE(claim(i));
    ASSERT_TRUE(complete(i, "answer " + std::to_string(i)));
    OtherProcess::report(i);
  }
}

// The log.

TEST_F(JournalStoreTest, CallsMadeDuringASyncShareTheNextOne) {
  FaultyLog& log = open_on_a_faulty_log();
  ASSERT_TRUE(claim(1));
  log.hold();
  std::atomic<int> answers = 0;
  std::promise<void> all;
  const auto count = [&](const Result<ClaimAnswer>& answer) {
    EXPECT_TRUE(answer);
    if (++answers == 101) all.set_value();
  };
  const std::uint64_t before = store_->stats().syncs;
  store_->claim(claim_of(2), count);
  log.wait_for_a_write();
  for (std::uint64_t i = 0; i < 100; ++i) store_->claim(claim_of(100 + i), count);
  log.let_all_through();
  all.get_future().wait();
  EXPECT_EQ(store_->stats().syncs - before, 2u);
  store_.reset();
}

TEST_F(JournalStoreTest, CallsOnOneKeyInOneBatchSeeEachOther) {
  FaultyLog& log = open_on_a_faulty_log();
  ASSERT_TRUE(claim(1));
  const std::uint64_t fence = fence_of(1);
  log.hold();
  store_->claim(claim_of(2), [](const Result<ClaimAnswer>&) {});
  log.wait_for_a_write();

  std::promise<Result<ClaimAnswer>> first;
  std::promise<Result<FenceAnswer>> completed;
  std::promise<Result<ClaimAnswer>> second;
  StoredResponse response;
  response.status = 200;
  response.body = "within the batch";
  store_->claim(claim_of(7), [&](Result<ClaimAnswer> answer) { first.set_value(std::move(answer)); });
  store_->complete({id_of(7), fence + 2}, response,
                   [&](Result<FenceAnswer> answer) { completed.set_value(std::move(answer)); });
  store_->claim(claim_of(7), [&](Result<ClaimAnswer> answer) { second.set_value(std::move(answer)); });
  log.let_all_through();
  EXPECT_TRUE(std::holds_alternative<Claimed>(*first.get_future().get()));
  EXPECT_EQ(*completed.get_future().get(), FenceAnswer::done);
  const Result<ClaimAnswer> found = second.get_future().get();
  ASSERT_TRUE(std::holds_alternative<Found>(*found));
  EXPECT_EQ(std::get<Found>(*found).record->response->body, "within the batch");
  store_.reset();
}

TEST_F(JournalStoreTest, AFullQueueRefusesNewClaimsAndStillTakesAnswers) {
  FaultyLog& log = open_on_a_faulty_log(std::size_t{32} << 20);
  ASSERT_TRUE(claim(1));
  const std::uint64_t fence = fence_of(1);
  log.hold();
  store_->claim(claim_of(2), [](const Result<ClaimAnswer>&) {});
  log.wait_for_a_write();
  std::atomic<std::size_t> refused = 0;
  for (std::uint64_t i = 0; i < kWaitingCallsMax + 10; ++i) {
    store_->renew({id_of(1), fence}, kLease, [&](const Result<FenceAnswer>& answer) { refused += answer ? 0 : 1; });
  }
  EXPECT_EQ(refused, 0u);
  const Result<ClaimAnswer> answer = claim(3);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.fault().kind, FaultKind::unavailable);
  EXPECT_THAT(answer.fault().message, HasSubstr("overloaded"));
  log.let_all_through();
  ASSERT_TRUE(complete(1, "in the end"));
  store_.reset();
}

// Large bodies.

class LargeBodies : public JournalStoreTest {
 protected:
  static std::string large(char letter) { return std::string(kLogBodyBytesMax + 1, letter); }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(path_ + "/bodies")) found.push_back(entry.path());
    return found;
  }
};

TEST_F(LargeBodies, AreInFilesOfTheirOwnAndReplayed) {
  open();
  ASSERT_TRUE(claim(1));
  ASSERT_TRUE(complete(1, large('x')));
  ASSERT_EQ(files().size(), 1u);
  EXPECT_EQ(mode_of(files().front()), 0600u);
  EXPECT_EQ(content_of(segment()).find(std::string(1000, 'x')), std::string::npos) << "not in the log";
  EXPECT_EQ(find(1)->record->response->body, large('x'));
  store_.reset();
  open();
  EXPECT_EQ(find(1)->record->response->body, large('x'));
  ASSERT_TRUE(replays(1));
  ASSERT_TRUE(store_->maintain());
  EXPECT_EQ(files().size(), 1u) << "a file that is referred to stays";
}

TEST_F(LargeBodies, AreRemovedWhenNothingRefersToThem) {
  open_on_the_machine();
  ASSERT_TRUE(claim(1));
  ASSERT_TRUE(complete(1, large('x')));
  const std::string left_by_a_crash = path_ + "/bodies/r-" + to_hex(id_of(2)) + "-0123456789abcdef";
  std::ofstream(left_by_a_crash) << "left";
  ASSERT_TRUE(store_->maintain());
  EXPECT_FALSE(std::filesystem::exists(left_by_a_crash));
  EXPECT_EQ(files().size(), 1u);
  // The record expires, and its key is claimed anew.
  machine_.since_boot += 2 * kRetention;
  ASSERT_TRUE(claim(1));
  ASSERT_TRUE(store_->maintain());
  EXPECT_TRUE(files().empty());
}

// Whether it has expired is decided under the lock. Were the file read before, with the lock given back, two claims
// could both find it expired.
TEST_F(LargeBodies, AreNotReadForAClaimThatFindsThemExpired) {
  open_on_the_machine();
  ASSERT_TRUE(claim(1));
  ASSERT_TRUE(complete(1, large('x')));
  std::filesystem::remove(files().front());
  machine_.since_boot += 2 * kRetention;
  const Result<ClaimAnswer> answer = claim(1);
  ASSERT_TRUE(answer) << answer.fault().message;
  EXPECT_TRUE(std::holds_alternative<Claimed>(*answer));
}

TEST_F(LargeBodies, DamageIsAFaultAndNeverAnAnswer) {
  open();
  ASSERT_TRUE(claim(1));
  ASSERT_TRUE(complete(1, large('x')));
  overwrite(files().front(), 5000, "y");
  EXPECT_THAT(refusal(1), HasSubstr("checksum"));
  std::filesystem::remove(files().front());
  EXPECT_THAT(refusal(1), HasSubstr("is missing"));
}

// Filters.

TEST_F(JournalStoreTest, AKeyThatWasNeverSeenIsKnownToBeNewWithoutReadingABlock) {
  constexpr std::uint64_t kKeys = 100; // fit into one segment: none is refused while a second one is made
  constexpr std::uint64_t kUnknown = 1000;
  open();
  for (std::uint64_t i = 0; i < kKeys; ++i) ASSERT_TRUE(claim(i));
  seal();
  rocksdb::SetPerfLevel(rocksdb::PerfLevel::kEnableCount);
  rocksdb::PerfContext& counts = *rocksdb::get_perf_context(); // of this thread, which looks
  const auto blocks = [&] { return counts.block_read_count + counts.block_cache_hit_count; };
  counts.Reset();
  for (std::uint64_t i = kKeys; i < kKeys + kUnknown; ++i) EXPECT_FALSE(find(i)) << i;
  EXPECT_LE(blocks(), kUnknown / 100);
  // RocksDB's filters know it too, for as long as the ids of old segments are being read.
  for (int tries = 0; counts.bloom_sst_miss_count != 0 && tries < 2000; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    counts.Reset();
    EXPECT_FALSE(find(kKeys + kUnknown));
  }
  for (std::uint64_t i = kKeys; i < kKeys + kUnknown; ++i) EXPECT_FALSE(find(i)) << i;
  EXPECT_LE(counts.bloom_sst_miss_count, kUnknown / 100) << "not even a file's filter is asked";
  counts.Reset();
  for (std::uint64_t i = 0; i < kKeys; ++i) EXPECT_TRUE(find(i)) << i;
  EXPECT_GE(blocks(), kKeys);
  rocksdb::SetPerfLevel(rocksdb::PerfLevel::kDisable);
}

TEST_F(JournalStoreTest, KeysAreFoundWhenTheirSegmentWasSealedBesideTheirCallers) {
  open();
  std::uint64_t keys = 0;
  const auto execute_another = [&] {
    for (int tries = 0; !claim(keys) && tries < 5000; ++tries) // no segment is free yet
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(complete(keys++, "done"));
  };
  while (store_->stats().buckets == 0 && keys < 2000) execute_another(); // until a segment is being sealed
  for (int i = 0; i < 200; ++i) execute_another();                       // more than fits into one
  for (std::uint64_t i = 0; i < keys; ++i) EXPECT_TRUE(find(i)) << i;
}

// Searches.

TEST_F(JournalStoreTest, ASearchByAKeysTextFindsYoungAndOldRecordsAndLooksAtNoOthers) {
  open();
  const auto claim_with_text = [&](std::uint64_t number, std::string text) {
    ClaimRequest request = claim_of(number);
    request.key = std::move(text);
    std::promise<void> claimed;
    store_->claim(std::move(request), [&](const Result<ClaimAnswer>&) { claimed.set_value(); });
    claimed.get_future().wait();
  };
  for (std::uint64_t i = 0; i < 100; ++i) claim_with_text(i, i % 50 == 0 ? "order 7" : "another");
  seal();
  claim_with_text(200, "order 7");
  BrowseRequest request;
  request.key = "order 7";
  std::optional<BrowsePage> page;
  store_->browse(request, [&](const Result<BrowsePage>& result) { page = *result; });
  ASSERT_EQ(page->lines.size(), 3u);
  EXPECT_EQ(page->lines.front().id, id_of(200)) << "the newest first";
  EXPECT_TRUE(page->whole);
  EXPECT_EQ(page->looked, 3u);
}

} // namespace
} // namespace oncekey::journal_tests
