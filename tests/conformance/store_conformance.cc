#include "store_conformance.h"

#include "base/log.h"
#include "store/journal/journal_store.h"
#include "store/memory/memory_store.h"

#include <atomic>
#include <barrier>
#include <cstring>
#include <filesystem>

namespace oncekey {
namespace {

constexpr Time kStart{Millis{1'700'000'000'000}};

class MemoryUnderTest : public StoreUnderTest {
 public:
  MemoryUnderTest() : store_(make_memory_store({.now = [this] { return kStart + Millis{passed_.load()}; }})) {}
  Store& store() override { return *store_; }
  void advance(Millis by) override { passed_ += by.count(); }
  bool reopen() override { return false; }

 private:
  std::atomic<std::int64_t> passed_ = 0;
  std::unique_ptr<Store> store_;
};

class JournalUnderTest : public StoreUnderTest {
 public:
  JournalUnderTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "oncekey-conformance-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    open();
  }
  ~JournalUnderTest() override {
    store_.reset();
    std::filesystem::remove_all(folder_);
  }
  Store& store() override { return *store_; }
  void advance(Millis by) override {
    passed_ += by.count();
    EXPECT_TRUE(store_->maintain());
  }
  bool reopen() override {
    store_.reset();
    open();
    return true;
  }

 private:
  void open() {
    ClockSources clock;
    clock.since_boot = [this] { return Millis{passed_.load()}; };
    clock.wall = [] { return kStart; };
    clock.boot_id = "one boot";
    clock.wall_is_right = [] { return true; };
    auto opened = JournalStore::open({.path = folder_ + "/store", // which has files beside it
                                      .log = log_,
                                      .on_fatal = [](const std::string& reason) { ADD_FAILURE() << reason; },
                                      .clock = std::move(clock),
                                      .segment_bytes = std::size_t{4} << 20,
                                      .maintenance = Maintenance::by_hand});
    ASSERT_TRUE(opened) << opened.fault().message;
    store_ = *std::move(opened);
  }

  Log log_{LogLevel::error};
  std::string folder_;
  std::atomic<std::int64_t> passed_ = 0;
  std::unique_ptr<JournalStore> store_;
};

StoreKind memory_kind() {
  return {"memory", [] { return std::make_unique<MemoryUnderTest>(); }};
}
StoreKind journal_kind() {
  return {"journal", [] { return std::make_unique<JournalUnderTest>(); }};
}

} // namespace

RecordId StoreConformance::id(std::uint64_t number) {
  RecordId id;
  id.bytes.fill(0x5a);
  std::memcpy(id.bytes.data(), &number, sizeof number);
  id.bytes[31] = static_cast<std::uint8_t>(number);
  return id;
}

Fingerprint StoreConformance::print(std::uint8_t byte) {
  Fingerprint fingerprint;
  fingerprint.bytes.fill(byte);
  return fingerprint;
}

StoredResponse StoreConformance::answer(std::string body, int status) {
  StoredResponse response;
  response.status = status;
  response.reason = "As Asked";
  response.headers.add("X-Order", "1");
  response.headers.add("x-order", "2");
  response.body = std::move(body);
  return response;
}

ClaimRequest StoreConformance::request(std::uint64_t key, Abandoned abandoned, std::uint8_t fingerprint) {
  ClaimRequest request;
  request.id = id(key);
  request.fingerprint = print(fingerprint);
  request.lease = kLease;
  request.retention = kRetention;
  request.abandoned = abandoned;
  request.route = "/orders";
  request.key = "key-" + std::to_string(key);
  request.method = "POST";
  request.target = "/orders?x=1";
  return request;
}

ClaimAnswer StoreConformance::claim(std::uint64_t key, Abandoned abandoned, std::uint8_t fingerprint) {
  return value_of<ClaimAnswer>(
      [&](auto done) { store().claim(request(key, abandoned, fingerprint), std::move(done)); });
}

std::uint64_t StoreConformance::own(std::uint64_t key, Abandoned abandoned) {
  const ClaimAnswer answer = claim(key, abandoned);
  const Claimed* const claimed = std::get_if<Claimed>(&answer);
  EXPECT_NE(claimed, nullptr) << "key " << key << " was not claimed";
  if (claimed == nullptr) return 0;
  EXPECT_GT(claimed->fence, fences_[key]) << "key " << key << ": a fence that is not above those before";
  return fences_[key] = claimed->fence;
}

std::uint64_t StoreConformance::own_for(std::uint64_t key, Millis retention) {
  ClaimRequest shorter = request(key, Abandoned::leave, 1);
  shorter.retention = retention;
  const ClaimAnswer answer =
      value_of<ClaimAnswer>([&](auto done) { store().claim(std::move(shorter), std::move(done)); });
  const Claimed* const claimed = std::get_if<Claimed>(&answer);
  return claimed != nullptr ? claimed->fence : 0;
}

Record StoreConformance::found(std::uint64_t key, Abandoned abandoned, std::uint8_t fingerprint) {
  const ClaimAnswer answer = claim(key, abandoned, fingerprint);
  const Found* const found = std::get_if<Found>(&answer);
  EXPECT_NE(found, nullptr) << "key " << key << " was not found";
  if (found != nullptr) return *found->record;
  Record nothing;
  nothing.response.emplace(); // a test that looks into it fails, and does not crash
  return nothing;
}

std::optional<Found> StoreConformance::find(std::uint64_t key) {
  return value_of<std::optional<Found>>([&](auto done) { store().find(id(key), Interest::none, std::move(done)); });
}

FenceAnswer StoreConformance::renew(std::uint64_t key, std::uint64_t fence, Millis lease) {
  return value_of<FenceAnswer>([&](auto done) { store().renew({id(key), fence}, lease, std::move(done)); });
}

FenceAnswer StoreConformance::complete(std::uint64_t key, std::uint64_t fence, StoredResponse response) {
  return value_of<FenceAnswer>([&](auto done) {
    store().complete({id(key), fence}, std::move(response), std::move(done));
  });
}

FenceAnswer StoreConformance::release(std::uint64_t key, std::uint64_t fence) {
  return value_of<FenceAnswer>([&](auto done) { store().release({id(key), fence}, std::move(done)); });
}

FenceAnswer StoreConformance::hold(std::uint64_t key, std::uint64_t fence, Holder by) {
  return value_of<FenceAnswer>([&](auto done) { store().hold({id(key), fence}, by, std::move(done)); });
}

OperatorAnswer StoreConformance::operate(std::uint64_t key, OperatorAction action, StoredResponse response) {
  return value_of<OperatorAnswer>(
      [&](auto done) { store().operate(id(key), action, std::move(response), std::move(done)); });
}

std::vector<Listed> StoreConformance::list(ListRequest request) {
  return value_of<std::vector<Listed>>([&](auto done) { store().list(request, std::move(done)); });
}

void StoreConformance::set_owners_here() {
  store().owners_here([this](const RecordId& id) -> std::optional<std::uint64_t> {
    const std::lock_guard lock(here_mutex_);
    const auto found = here_.find(id);
    return found != here_.end() ? std::optional(found->second) : std::nullopt;
  });
}

void StoreConformance::works_here(std::uint64_t key, std::optional<std::uint64_t> fence) {
  const std::lock_guard lock(here_mutex_);
  if (fence) {
    here_[id(key)] = *fence;
  } else {
    here_.erase(id(key));
  }
}

bool StoreConformance::look_and_wait(std::uint64_t key) {
  const auto found =
      value_of<std::optional<Found>>([&](auto done) { store().find(id(key), Interest::settling, std::move(done)); });
  return found && found->record->state == RecordState::in_progress;
}

bool StoreConformance::told(std::uint64_t key) {
  std::unique_lock lock(news_mutex_);
  return news_came_.wait_for(lock, std::chrono::seconds(20), [&] { return news_.contains(id(key)); });
}

bool StoreConformance::same_instant(Time a, Time b) const { return std::chrono::abs(a - b) < under_test_->blink(); }

int StoreConformance::race_for(std::uint64_t key, int threads) {
  std::barrier start(threads);
  std::atomic<int> winners = 0;
  std::vector<std::jthread> racers;
  for (int i = 0; i < threads; ++i) {
    racers.emplace_back([&] {
      start.arrive_and_wait();
      if (std::holds_alternative<Claimed>(claim(key))) ++winners;
    });
  }
  racers.clear();
  return winners;
}

// Claims.

TEST_P(StoreConformance, AFirstClaimIsOwned) { EXPECT_GT(own(1), 0u); }

TEST_P(StoreConformance, ASecondClaimFindsTheFirst) {
  own(1);
  const Record record = found(1);
  EXPECT_EQ(record.state, RecordState::in_progress);
  EXPECT_EQ(record.fence, fence(1));
  EXPECT_EQ(record.fingerprint, print(1));
  EXPECT_TRUE(same_instant(record.lease_until, store().now() + kLease));
  EXPECT_TRUE(same_instant(record.expires_at, store().now() + kRetention));
  EXPECT_EQ(record.route + " " + record.key + " " + record.method + " " + record.target,
            "/orders key-1 POST /orders?x=1");
}

TEST_P(StoreConformance, ARecordTellsWhereTheClaimOfItsOwnerCameFrom) {
  const auto claim_from = [&](std::string gateway, std::optional<TraceId> trace,
                              std::optional<AccountTag> account = std::nullopt) {
    ClaimRequest from = request(1, Abandoned::take_over, 1);
    from.context = {.gateway = std::move(gateway), .trace = trace, .account = account};
    return value_of<ClaimAnswer>([&](auto done) { store().claim(std::move(from), std::move(done)); });
  };
  TraceId trace;
  trace.fill(0xa5);
  claim_from("eu-1", trace);
  EXPECT_EQ(find(1)->record->context.gateway, "eu-1");
  EXPECT_EQ(find(1)->record->context.trace, trace);
  advance(kLease);
  AccountTag account;
  account.fill(0xac);
  const ClaimAnswer taken = claim_from("eu-2", std::nullopt, account);
  ASSERT_TRUE(std::holds_alternative<Claimed>(taken));
  complete(1, std::get<Claimed>(taken).fence, StoredResponse{});
  const ClaimContext context = find(1)->record->context;
  EXPECT_EQ(context.gateway, "eu-2");
  EXPECT_FALSE(context.trace);
  EXPECT_EQ(context.account, account);
  EXPECT_EQ(list({}).front().record.context.gateway, "eu-2");
  EXPECT_EQ(list({}).front().record.context.account, account);
}

TEST_P(StoreConformance, SealedResponsesAndStreamsComeBackAsTheyWere) {
  own(1);
  StoredResponse response;
  response.status = 201;
  response.stream = StreamMark::begun;
  EXPECT_EQ(complete(1, fence(1), response), FenceAnswer::done);
  EXPECT_EQ(find(1)->record->response->stream, StreamMark::begun);
  response.stream = StreamMark::whole;
  response.sealed = std::make_shared<const Sealed>(Sealed{9, fence(1), {}, "ciphertext and its tag"});
  EXPECT_EQ(complete(1, fence(1), response), FenceAnswer::done) << "what has begun gets its end";
  EXPECT_EQ(complete(1, fence(1), response), FenceAnswer::lost) << "once";
  const StoredResponse kept = *find(1)->record->response;
  EXPECT_EQ(kept.stream, StreamMark::whole);
  ASSERT_TRUE(kept.sealed);
  EXPECT_EQ(kept.sealed->key_id, 9u);
  EXPECT_EQ(kept.sealed->fence, fence(1));
  EXPECT_EQ(kept.sealed->bytes, "ciphertext and its tag");
}

TEST_P(StoreConformance, KeysAreIndependent) {
  own(1);
  own(2);
  EXPECT_EQ(found(1).key, "key-1");
  EXPECT_EQ(found(2).key, "key-2");
}

TEST_P(StoreConformance, AmongThirtyTwoThreadsOneWins) {
  for (std::uint64_t round = 0; round < 40; ++round) EXPECT_EQ(race_for(1000 + round, 32), 1) << "round " << round;
}

TEST_P(StoreConformance, AMismatchFindsTheRecordAndChangesNothing) {
  own(1);
  EXPECT_EQ(found(1, Abandoned::take_over, 2).fingerprint, print(1));
  advance(kLease);
  EXPECT_EQ(found(1, Abandoned::take_over, 2).fence, fence(1));
  EXPECT_EQ(find(1)->record->fingerprint, print(1));
}

TEST_P(StoreConformance, FindSeesWhatAClaimWouldAndNothingElse) {
  EXPECT_FALSE(find(1));
  own(1);
  ASSERT_TRUE(find(1));
  EXPECT_EQ(find(1)->record->key, "key-1");
  EXPECT_TRUE(same_instant(find(1)->now, store().now()));
}

// Leases and fences.

TEST_P(StoreConformance, WhenTheLeaseIsOverTheRecordIsAbandonedAndStays) {
  own(1);
  advance(kLease);
  EXPECT_TRUE(found(1, Abandoned::leave).abandoned(store().now()));
}

TEST_P(StoreConformance, ATakeoverNeedsTheLeaseToBeOver) {
  own(1);
  advance(kLease - blink());
  EXPECT_EQ(found(1, Abandoned::take_over).fence, fence(1));
  advance(blink());
  own(1, Abandoned::take_over);
  EXPECT_EQ(find(1)->record->fence, fence(1));
  EXPECT_TRUE(find(1)->record->took_over);
}

TEST_P(StoreConformance, ATakeoverChangesTheOwnerAndNotWhatWasAskedFirst) {
  own(1);
  advance(kLease);
  ClaimRequest other = request(1, Abandoned::take_over, 1);
  other.token.fill(9);
  other.key = "another key";
  other.route = "another route";
  other.method = "PUT";
  other.target = "/another/target";
  other.context.gateway = "another gateway";
  const Record first = *find(1)->record;
  value_of<ClaimAnswer>([&](auto done) { store().claim(other, std::move(done)); });
  const Record now = *find(1)->record;
  EXPECT_TRUE(now.took_over);
  EXPECT_TRUE(now.claimed_by == other.token || !shared()) << "a store of one process needs no token";
  EXPECT_EQ(now.context.gateway, other.context.gateway);
  EXPECT_EQ(now.key, first.key);
  EXPECT_EQ(now.route, first.route);
  EXPECT_EQ(now.method, first.method);
  EXPECT_EQ(now.target, first.target);
}

TEST_P(StoreConformance, ARecordTellsSinceWhenItsOwnerHasIt) {
  own(1);
  const Time first = find(1)->record->first_received;
  EXPECT_EQ(find(1)->record->claimed_at(), first);
  advance(kLease);
  own(1, Abandoned::take_over);
  const Record taken = found(1, Abandoned::leave);
  EXPECT_EQ(taken.first_received, first);
  EXPECT_GE(taken.claimed_at() - first, kLease);
  renew(1, fence(1));
  EXPECT_EQ(find(1)->record->claimed_at(), taken.claimed_at());
}

TEST_P(StoreConformance, ATakeoverKeepsTheExpiryOfTheFirst) {
  own(1);
  const Time expires_at = find(1)->record->expires_at;
  advance(kLease);
  own(1, Abandoned::take_over);
  EXPECT_EQ(find(1)->record->expires_at, expires_at);
}

TEST_P(StoreConformance, RenewingKeepsOthersOut) {
  own(1);
  advance(kLease - blink());
  EXPECT_EQ(renew(1, fence(1)), FenceAnswer::done);
  advance(kLease - blink());
  EXPECT_EQ(found(1, Abandoned::take_over).fence, fence(1));
}

TEST_P(StoreConformance, AnOwnerWhoWasReplacedCanWriteNothing) {
  const std::uint64_t old = own(1);
  advance(kLease);
  own(1, Abandoned::take_over);
  EXPECT_EQ(renew(1, old), FenceAnswer::lost);
  EXPECT_EQ(complete(1, old, answer("old")), FenceAnswer::lost);
  EXPECT_EQ(release(1, old), FenceAnswer::lost);
  EXPECT_EQ(hold(1, old), FenceAnswer::lost);
  EXPECT_EQ(complete(1, fence(1), answer("new")), FenceAnswer::done);
  EXPECT_EQ(found(1).response->body, "new");
}

TEST_P(StoreConformance, ASlowOwnerWhomNobodyReplacedMayComplete) {
  own(1);
  advance(2 * kLease);
  EXPECT_EQ(complete(1, fence(1), answer("late")), FenceAnswer::done);
}

TEST_P(StoreConformance, WritesToAnUnknownKeyAreLost) {
  const std::uint64_t of_another = own(1);
  EXPECT_EQ(renew(9, of_another), FenceAnswer::lost);
  EXPECT_EQ(complete(9, of_another, answer("x")), FenceAnswer::lost);
  EXPECT_EQ(release(9, of_another), FenceAnswer::lost);
  EXPECT_EQ(hold(9, of_another), FenceAnswer::lost);
}

// Settling.

TEST_P(StoreConformance, ACompletedRecordIsReplayedWhole) {
  own(1);
  const std::string body("a\0b\r\n\xff", 6);
  EXPECT_EQ(complete(1, fence(1), answer(body, 402)), FenceAnswer::done);
  const Record record = found(1, Abandoned::take_over);
  EXPECT_EQ(record.state, RecordState::completed);
  EXPECT_EQ(record.response->status, 402);
  EXPECT_EQ(record.response->reason, "As Asked");
  EXPECT_EQ(record.response->headers.lines(), "X-Order: 1\r\nx-order: 2\r\n");
  EXPECT_EQ(record.response->body, body);
}

TEST_P(StoreConformance, AnAnswerOnceGivenIsNeverChanged) {
  own(1);
  complete(1, fence(1), answer("first"));
  EXPECT_EQ(complete(1, fence(1), answer("second")), FenceAnswer::lost);
  EXPECT_EQ(release(1, fence(1)), FenceAnswer::lost);
  EXPECT_EQ(hold(1, fence(1)), FenceAnswer::lost);
  EXPECT_EQ(found(1).response->body, "first");
}

TEST_P(StoreConformance, ABodyOfEightMegabytesComesBack) {
  own(1);
  const std::string body(std::size_t{8} << 20, 'b');
  EXPECT_EQ(complete(1, fence(1), answer(body)), FenceAnswer::done);
  EXPECT_EQ(found(1).response->body, body);
}

TEST_P(StoreConformance, AStreamedAnswerGetsItsHashAtTheEndAndThenStays) {
  own(1);
  StoredResponse streaming = answer("");
  streaming.omitted = OmittedBody{};
  EXPECT_EQ(complete(1, fence(1), streaming), FenceAnswer::done);
  EXPECT_FALSE(found(1).response->omitted->whole);
  streaming.omitted = OmittedBody{.length = 77, .sha256 = {}, .whole = true};
  EXPECT_EQ(complete(1, fence(1), streaming), FenceAnswer::done);
  EXPECT_EQ(found(1).response->omitted->length, 77u);
  EXPECT_EQ(complete(1, fence(1), streaming), FenceAnswer::lost);
}

TEST_P(StoreConformance, AReleasedKeyIsFreeForAnyRequestAndItsNumberNeverComesAgain) {
  const std::uint64_t before = own(1);
  EXPECT_EQ(release(1, before), FenceAnswer::done);
  EXPECT_FALSE(find(1));
  EXPECT_TRUE(list().empty());
  EXPECT_EQ(complete(1, before, answer("after the release")), FenceAnswer::lost);
  const ClaimAnswer again = claim(1, Abandoned::leave, 2);
  ASSERT_TRUE(std::holds_alternative<Claimed>(again));
  EXPECT_GT(std::get<Claimed>(again).fence, before);
  EXPECT_FALSE(std::get<Claimed>(again).took_over);
  EXPECT_EQ(complete(1, before, answer("from before the release")), FenceAnswer::lost);
  EXPECT_EQ(renew(1, before), FenceAnswer::lost);
  EXPECT_EQ(release(1, before), FenceAnswer::lost);
}

TEST_P(StoreConformance, TheNumberOfAPausedOwnerDoesNotComeAgainAfterTheRetention) {
  const std::uint64_t paused = own(1);
  advance(3 * kRetention);
  for (std::uint64_t key = 100; key < 140; ++key) own(key); // a store may clean up as it is used
  EXPECT_GT(own(1), paused);
  EXPECT_EQ(complete(1, paused, answer("late")), FenceAnswer::lost);
  EXPECT_EQ(release(1, paused), FenceAnswer::lost);
}

INSTANTIATE_TEST_SUITE_P(Memory, StoreConformance, ::testing::ValuesIn(clear_and_sealed(memory_kind())),
                         [](const auto& kind) { return kind.param.name; });
INSTANTIATE_TEST_SUITE_P(Memory, JobsConformance, ::testing::ValuesIn(clear_and_sealed(memory_kind())),
                         [](const auto& kind) { return kind.param.name; });
INSTANTIATE_TEST_SUITE_P(Memory, BrowseConformance, ::testing::ValuesIn(clear_and_sealed(memory_kind())),
                         [](const auto& kind) { return kind.param.name; });
INSTANTIATE_TEST_SUITE_P(Journal, StoreConformance, ::testing::ValuesIn(clear_and_sealed(journal_kind())),
                         [](const auto& kind) { return kind.param.name; });
INSTANTIATE_TEST_SUITE_P(Journal, JobsConformance, ::testing::ValuesIn(clear_and_sealed(journal_kind())),
                         [](const auto& kind) { return kind.param.name; });
INSTANTIATE_TEST_SUITE_P(Journal, BrowseConformance, ::testing::ValuesIn(clear_and_sealed(journal_kind())),
                         [](const auto& kind) { return kind.param.name; });

} // namespace oncekey
