#include "store/common/guarded_store.h"

#include "core/job_transitions.h"
#include "core/transitions.h"
#include "store/common/own_claims.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <future>
#include <map>
#include <mutex>
#include <thread>

namespace oncekey {
namespace {

constexpr Time kNow{Millis{1'700'000'000'000}};

// How the next call over the wire ends.
enum class Wire {
  answers,
  refuses,     // never sent
  loses_call,  // sent and lost on the way: the caller cannot know
  loses_reply, // happened, and the answer was lost: the caller cannot know
};

// A server on the other side of a wire that breaks when told. One mistake of the guard is a second owner.
class Server final : public Store {
 public:
  static constexpr std::size_t kNone = 1000;
  // The guard's second tries come from another thread.
  mutable std::recursive_mutex mutex;
  std::deque<Wire> next;
  int calls = 0;
  std::optional<ClaimRequest> last_claim;
  std::atomic<Time> time = kNow;
  Durability level = Durability::power;
  // The records of this server number are refused.
  std::atomic<std::size_t> dead_server = kStoreServersMax;
  std::atomic<std::size_t> moved_to_dead_server = kNone; // the first byte of the records that have gone there
  std::atomic<bool> finds_what_is_corrupt = false;
  std::size_t server_of(const RecordId& id) const override {
    return id.bytes[0] == moved_to_dead_server ? dead_server.load() : id.bytes[0] % server_count;
  }
  std::size_t servers() const override { return server_count; }
  std::size_t server_count = 1;

  void claim(ClaimRequest request, Done<ClaimAnswer> done) override {
    {
      const std::lock_guard lock(mutex);
      last_claim = request;
    }
    if (server_of(request.id) == dead_server) return done(unavailable("that server is dead"));
    over_the_wire<ClaimAnswer>(std::move(done), [&]() -> ClaimAnswer {
      ClaimStep step = claim_step(record(request.id), request, ++last_fence_, time);
      keep(request.id, std::move(step.write));
      return step.answer;
    });
  }
  void find(const RecordId& id, Interest /*interest*/, Done<std::optional<Found>> done) override {
    if (server_of(id) == dead_server) return done(unavailable("that server is dead"));
    if (finds_what_is_corrupt) return done(corrupt("unreadable"));
    over_the_wire<std::optional<Found>>(std::move(done), [&]() -> std::optional<Found> {
      const std::optional<Record> found = record(id);
      if (!found) return std::nullopt;
      return Found{*found, time.load()};
    });
  }
  void by_fence(FenceCall call) override {
    over_the_wire<FenceAnswer>(std::move(call.done), [&] {
      FenceStep made = fence_step(record(call.owner.id), call, time);
      if (made.erase) records_.erase(call.owner.id);
      keep(call.owner.id, std::move(made.write));
      return made.answer;
    });
  }
  JobStore& jobs() override { return jobs_; }
  void operate(const RecordId& /*id*/, OperatorAction /*action*/, StoredResponse /*response*/,
               Done<OperatorAnswer> done) override {
    done(OperatorAnswer::absent);
  }
  void list(const ListRequest& /*request*/, Done<std::vector<Listed>> done) override { done(std::vector<Listed>{}); }
  void browse(const BrowseRequest& /*request*/, Done<BrowsePage> done) override { done(BrowsePage{}); }
  void count_waiting(Done<WaitingKeys> done) override { done(WaitingKeys{}); }
  Time now() const override { return time; }
  const std::array<std::uint8_t, 32>& secret() const override { return secret_; }
  Durability durability() const override { return level; }
  Status healthy() const override { return ok_status(); }
  StoreStats stats() const override { return {}; }

  std::optional<Record> record(const RecordId& id) const {
    const std::lock_guard lock(mutex);
    const auto found = records_.find(id);
    if (found == records_.end()) return std::nullopt;
    return found->second;
  }
  std::optional<StoredJob> job(const RecordId& id) const {
    const std::lock_guard lock(mutex);
    const auto found = stored_jobs_.find(id);
    if (found == stored_jobs_.end()) return std::nullopt;
    return found->second;
  }

 private:
  class Jobs final : public JobStore {
   public:
    explicit Jobs(Server& server) : server_(server) {}
    void stage(StageRequest request, Done<StageAnswer> done) override {
      server_.over_the_wire<StageAnswer>(std::move(done), [&]() -> StageAnswer {
        const std::optional<StoredJob> found = server_.job(request.id);
        const std::optional<StoredJob> staged = stage_step(found, request, server_.time);
        if (staged) server_.stored_jobs_[request.id] = *staged;
        return {staged.has_value(), staged ? staged->fingerprint : found->fingerprint};
      });
    }
    void take(const TakeRequest& request, Done<std::vector<TakenJob>> done) override {
      server_.over_the_wire<std::vector<TakenJob>>(std::move(done), [&]() -> std::vector<TakenJob> {
        std::vector<TakenJob> taken;
        for (auto& [id, found] : server_.stored_jobs_) {
          const auto job = take_job_step(found, request, ++server_.last_fence_, server_.time);
          if (!job) continue;
          found = *job;
          taken.push_back({*job, {}, server_.time.load()});
        }
        return taken;
      });
    }
    void end_attempt(const Ownership& owner, AttemptEnd end, Done<FenceAnswer> done) override {
      server_.over_the_wire<FenceAnswer>(std::move(done), [&] {
        const auto job = end_attempt_step(server_.job(owner.id), owner.fence, std::move(end), server_.time);
        if (job) server_.stored_jobs_[owner.id] = *job;
        return job ? FenceAnswer::done : FenceAnswer::lost;
      });
    }
    void find(const RecordId& id, Done<std::optional<FoundJob>> done) override {
      server_.over_the_wire<std::optional<FoundJob>>(std::move(done), [&]() -> std::optional<FoundJob> {
        const std::optional<StoredJob> found = server_.job(id);
        if (!found) return std::nullopt;
        return FoundJob{*found, Message{}, server_.time.load()};
      });
    }
    void operate(const RecordId& /*id*/, const std::string& /*route*/, JobAction /*action*/,
                 std::optional<JobSeen> /*seen*/, Done<JobAnswer> done) override {
      done(JobAnswer::absent);
    }
    void list(const JobListRequest& /*request*/, Done<JobPage> done) override { done(JobPage{}); }
    void count(Done<std::vector<JobCount>> done) override { done(std::vector<JobCount>{}); }

   private:
    Server& server_;
  };

  void keep(const RecordId& id, std::optional<Record> written) {
    if (written) records_[id] = *std::move(written);
  }
  template <class T, class Happens>
  void over_the_wire(Done<T> done, Happens happens) {
    std::optional<Result<T>> answer;
    {
      const std::lock_guard lock(mutex);
      ++calls;
      const Wire wire = next.empty() ? Wire::answers : next.front();
      if (!next.empty()) next.pop_front();
      if (wire == Wire::answers || wire == Wire::loses_reply) answer.emplace(happens());
      if (wire == Wire::refuses) answer.emplace(unavailable("not connected"));
      if (wire == Wire::loses_reply || wire == Wire::loses_call) answer.emplace(Fault{FaultKind::timeout, "no answer"});
    }
    done(*std::move(answer));
  }

  std::uint64_t last_fence_ = 0;
  std::map<RecordId, Record> records_;
  std::map<RecordId, StoredJob> stored_jobs_;
  Jobs jobs_{*this};
  std::array<std::uint8_t, 32> secret_{};
};

class GuardedStoreTest : public ::testing::Test {
 protected:
  void SetUp() override { make({.log = log_}); }
  void make(GuardOptions options) {
    auto server = std::make_unique<Server>();
    server_ = server.get();
    guard_ = guarded(std::move(server), options);
  }

  static RecordId id(std::uint8_t number) {
    RecordId made;
    made.bytes[0] = number;
    return made;
  }
  static ClaimRequest request(std::uint8_t key) {
    ClaimRequest made;
    made.id = id(key);
    made.lease = Millis{10'000};
    made.retention = Millis{400'000};
    made.key = "order-" + std::to_string(key);
    return made;
  }
  static StoredResponse response(std::string body) {
    StoredResponse made;
    made.status = 201;
    made.body = std::move(body);
    return made;
  }

  template <class T, class Call>
  static Result<T> wait_for(Call call) {
    std::promise<Result<T>> promise;
    std::future<Result<T>> answer = promise.get_future();
    call([&promise](Result<T> result) { promise.set_value(std::move(result)); });
    return answer.get();
  }
  Result<ClaimAnswer> claim(std::uint8_t key) {
    return wait_for<ClaimAnswer>([&](auto done) { guard_->claim(request(key), std::move(done)); });
  }
  Result<StageAnswer> stage(std::uint8_t key) {
    StageRequest job;
    job.id = id(key);
    job.retention = Millis{400'000};
    return wait_for<StageAnswer>([&](auto done) { guard_->jobs().stage(job, std::move(done)); });
  }
  std::vector<TakenJob> take() {
    const TakeRequest wanted{"", 10, Millis{10'000}, {}};
    const auto taken =
        wait_for<std::vector<TakenJob>>([&](auto done) { guard_->jobs().take(wanted, std::move(done)); });
    return taken ? *taken : std::vector<TakenJob>{};
  }
  TakenJob staged_and_taken(std::uint8_t key) {
    EXPECT_TRUE(stage(key));
    const std::vector<TakenJob> taken = take();
    EXPECT_EQ(taken.size(), 1U);
    return taken.empty() ? TakenJob{} : taken.front();
  }
  Result<FenceAnswer> end_attempt(const TakenJob& job, AttemptEnd::Kind kind) {
    AttemptEnd end;
    end.kind = kind;
    end.pause = Millis{50'000};
    return wait_for<FenceAnswer>([&](auto done) {
      guard_->jobs().end_attempt({job.job.id, job.job.fence}, end, std::move(done));
    });
  }
  std::uint64_t own(std::uint8_t key) {
    const Result<ClaimAnswer> answer = claim(key);
    EXPECT_TRUE(answer.ok() && std::holds_alternative<Claimed>(*answer));
    return answer.ok() && std::holds_alternative<Claimed>(*answer) ? std::get<Claimed>(*answer).fence : 0;
  }
  Result<FenceAnswer> complete(std::uint8_t key, std::uint64_t fence, std::string body) {
    return wait_for<FenceAnswer>([&](auto done) {
      guard_->complete({id(key), fence}, response(std::move(body)), std::move(done));
    });
  }
  Result<FenceAnswer> release(std::uint8_t key, std::uint64_t fence) {
    return wait_for<FenceAnswer>([&](auto done) { guard_->release({id(key), fence}, std::move(done)); });
  }

  Log log_{LogLevel::error};
  Server* server_ = nullptr;
  std::unique_ptr<Store> guard_;
};

TEST_F(GuardedStoreTest, AClaimWhoseAnswerWasLostFindsItsOwnWork) {
  server_->next = {Wire::loses_reply};
  EXPECT_EQ(own(1), 1u);
  EXPECT_EQ(server_->record(id(1))->fence, 1u) << "claimed once";
}

TEST_F(GuardedStoreTest, AClaimThatNeverArrivedIsMadeOnce) {
  server_->next = {Wire::loses_call, Wire::refuses};
  EXPECT_EQ(own(1), 1u);
}

TEST_F(GuardedStoreTest, AClaimConfirmedAfterItsLeaseIsNoneAndIsReleased) {
  server_->next = {Wire::loses_reply, Wire::refuses, Wire::refuses, Wire::refuses};
  std::promise<Result<ClaimAnswer>> promise;
  guard_->claim(request(1), [&promise](Result<ClaimAnswer> answer) { promise.set_value(std::move(answer)); });
  server_->time = kNow + Millis{10'000};
  const Result<ClaimAnswer> answer = promise.get_future().get();
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.fault().kind, FaultKind::timeout);
  for (int i = 0; i < 500 && server_->record(id(1)); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_GT(own(1), 1u);
}

TEST_F(GuardedStoreTest, SomebodyElsesClaimIsNotTakenForOurs) {
  own(1);
  server_->next = {Wire::loses_reply};
  const Result<ClaimAnswer> answer = claim(1);
  ASSERT_TRUE(answer);
  EXPECT_TRUE(std::holds_alternative<Found>(*answer));
}

TEST_F(GuardedStoreTest, AClaimThatWasNeverSentIsRefusedAtOnce) {
  server_->next = {Wire::refuses};
  const Result<ClaimAnswer> answer = claim(1);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.fault().kind, FaultKind::unavailable);
  EXPECT_EQ(server_->calls, 1);
}

TEST_F(GuardedStoreTest, AClaimThatStaysUnknownIsReleasedWhenTheStoreIsBack) {
  make({.log = log_, .claim_patience = Millis{0}});
  server_->next = {Wire::loses_reply};
  const Result<ClaimAnswer> answer = claim(1);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.fault().kind, FaultKind::timeout);
  for (int i = 0; i < 500; ++i) {
    const Result<ClaimAnswer> again = claim(1);
    if (again.ok() && std::holds_alternative<Claimed>(*again)) {
      EXPECT_GT(std::get<Claimed>(*again).fence, 1u);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  FAIL() << "still claimed";
}

TEST_F(GuardedStoreTest, AClaimThatHappensAfterItWasLookedForIsReleasedToo) {
  make({.log = log_, .claim_patience = Millis{0}});
  server_->next = {Wire::loses_call};
  ASSERT_FALSE(claim(1));
  const auto calls = [&] {
    const std::lock_guard lock(server_->mutex);
    return server_->calls;
  };
  for (int i = 0; i < 500 && calls() < 2; ++i) std::this_thread::sleep_for(Millis{10});
  ASSERT_GE(calls(), 2) << "it was looked for, and was not there";
  server_->claim(*server_->last_claim, [](const Result<ClaimAnswer>&) {});
  ASSERT_EQ(server_->record(id(1))->state, RecordState::in_progress);
  for (int i = 0; i < 500 && server_->record(id(1)); ++i) {
    std::this_thread::sleep_for(Millis{10});
  }
  EXPECT_FALSE(server_->record(id(1)));
}

TEST_F(GuardedStoreTest, ACompletionWhoseAnswerWasLostIsDone) {
  const std::uint64_t fence = own(1);
  server_->next = {Wire::loses_reply};
  const Result<FenceAnswer> answer = complete(1, fence, "charged");
  ASSERT_TRUE(answer);
  EXPECT_EQ(*answer, FenceAnswer::done);
}

TEST_F(GuardedStoreTest, ACompletionIsTriedAgainWhileTheStoreIsAway) {
  const std::uint64_t fence = own(1);
  server_->next = {Wire::refuses, Wire::loses_call, Wire::refuses};
  const Result<FenceAnswer> answer = complete(1, fence, "charged");
  ASSERT_TRUE(answer);
  EXPECT_EQ(*answer, FenceAnswer::done);
  EXPECT_EQ(server_->record(id(1))->response->body, "charged");
}

TEST_F(GuardedStoreTest, AnAnswerOfAnotherOwnerIsNotTakenForOurs) {
  const std::uint64_t old_fence = own(1);
  server_->time = kNow + Millis{20'000};
  ClaimRequest takeover = request(1);
  takeover.abandoned = Abandoned::take_over;
  const auto second = wait_for<ClaimAnswer>([&](auto done) { guard_->claim(takeover, std::move(done)); });
  ASSERT_TRUE(second);
  ASSERT_TRUE(std::holds_alternative<Claimed>(*second));
  EXPECT_EQ(*complete(1, std::get<Claimed>(*second).fence, "charged"), FenceAnswer::done);
  server_->next = {Wire::loses_call};
  EXPECT_EQ(*complete(1, old_fence, "charged"), FenceAnswer::lost) << "the same bytes, and still not ours";
}

TEST_F(GuardedStoreTest, AnotherSealedAnswerIsNotTakenForOurs) {
  const std::uint64_t fence = own(1);
  const auto sealed = [](std::string bytes) {
    StoredResponse made = response("");
    made.sealed = std::make_shared<const Sealed>(Sealed{1, 0, {}, std::move(bytes)});
    return made;
  };
  const auto complete_with = [&](std::string bytes) {
    server_->next = {Wire::loses_call};
    return wait_for<FenceAnswer>([&](auto done) {
      guard_->complete({id(1), fence}, sealed(std::move(bytes)), std::move(done));
    });
  };
  EXPECT_EQ(*complete_with("first"), FenceAnswer::done);
  EXPECT_EQ(*complete_with("second"), FenceAnswer::lost);
  EXPECT_EQ(*complete_with("first"), FenceAnswer::done) << "what this call would have written is there";
}

TEST_F(GuardedStoreTest, AnOwnerOfThisProcessIsNeitherReplacedNorHeldAfterAPause) {
  const std::uint64_t fence = own(1);
  std::optional<std::uint64_t> here = fence;
  guard_->owners_here([&](const RecordId&) { return here; });
  server_->time = kNow + Millis{20'000};
  ClaimRequest takeover = request(1);
  takeover.abandoned = Abandoned::take_over;
  const auto claim_again = [&] {
    return wait_for<ClaimAnswer>([&](auto done) { guard_->claim(takeover, std::move(done)); });
  };
  const auto hold = [&] {
    return wait_for<FenceAnswer>([&](auto done) { guard_->hold({id(1), fence}, Holder::finder, std::move(done)); });
  };
  EXPECT_EQ(*hold(), FenceAnswer::lost);
  const Result<ClaimAnswer> found = claim_again();
  ASSERT_TRUE(found);
  ASSERT_TRUE(std::holds_alternative<Found>(*found));
  EXPECT_FALSE(std::get<Found>(*found).record->abandoned(server_->now()));
  EXPECT_FALSE(server_->record(id(1))->abandoned(server_->now())) << "not renewed";
  // Once its call has ended, the record is like any other.
  here.reset();
  server_->time = kNow + Millis{60'000};
  EXPECT_TRUE(std::holds_alternative<Claimed>(*claim_again()));
}

TEST_F(GuardedStoreTest, AReleaseWhoseAnswerWasLostIsDone) {
  const std::uint64_t fence = own(1);
  server_->next = {Wire::loses_reply};
  EXPECT_EQ(*release(1, fence), FenceAnswer::done);
  EXPECT_GT(own(1), 1u);
}

TEST_F(GuardedStoreTest, AnAttemptWhoseEndWasLostOnTheWayBackHasEnded) {
  for (const AttemptEnd::Kind kind : {AttemptEnd::Kind::delivered, AttemptEnd::Kind::again, AttemptEnd::Kind::dead}) {
    const TakenJob job = staged_and_taken(static_cast<std::uint8_t>(10 + static_cast<int>(kind)));
    server_->next = {Wire::loses_reply};
    const Result<FenceAnswer> answer = end_attempt(job, kind);
    ASSERT_TRUE(answer);
    EXPECT_EQ(*answer, FenceAnswer::done);
  }
}

TEST_F(GuardedStoreTest, AnAttemptThatSomebodyElseHasTakenOverIsLost) {
  const TakenJob job = staged_and_taken(20);
  server_->time = kNow + Millis{60'000};
  ASSERT_EQ(take().size(), 1U);
  server_->next = {Wire::loses_reply};
  const Result<FenceAnswer> answer = end_attempt(job, AttemptEnd::Kind::delivered);
  ASSERT_TRUE(answer);
  EXPECT_EQ(*answer, FenceAnswer::lost);
}

TEST_F(GuardedStoreTest, AJobWhoseStagingWasLostOnTheWayBackIsStaged) {
  server_->next = {Wire::loses_reply};
  const Result<StageAnswer> answer = stage(30);
  ASSERT_TRUE(answer);
  EXPECT_TRUE(answer->staged);
  const Result<StageAnswer> again = stage(30);
  ASSERT_TRUE(again);
  EXPECT_FALSE(again->staged);
}

TEST_F(GuardedStoreTest, AStagedJobWhoseAnswerStaysUnknownIsStillThere) {
  make({.log = log_, .claim_patience = Millis{20}});
  {
    const std::lock_guard lock(server_->mutex);
    server_->next = {Wire::loses_reply};
    server_->next.insert(server_->next.end(), 100, Wire::loses_call);
  }
  EXPECT_FALSE(stage(30));
  {
    const std::lock_guard lock(server_->mutex);
    server_->next.clear();
  }
  EXPECT_EQ(server_->job(id(30))->state, JobState::waiting);
  EXPECT_EQ(take().size(), 1U);
}

TEST_F(GuardedStoreTest, ADeadStoreIsNotAskedAndOwnersMayStillFinish) {
  const std::uint64_t fence = own(1);
  server_->next = std::deque<Wire>(kFailuresToOpen, Wire::refuses);
  for (int i = 0; i < kFailuresToOpen; ++i) EXPECT_FALSE(claim(2));
  EXPECT_FALSE(guard_->healthy());
  server_->next = std::deque<Wire>(1, Wire::loses_reply); // the next call pays for it
  const Result<ClaimAnswer> refused = claim(2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.fault().kind, FaultKind::unavailable) << "refused without asking";
  EXPECT_NE(refused.fault().message.find("not connected"), std::string::npos) << refused.fault().message;
  server_->next.clear();
  EXPECT_EQ(*complete(1, fence, "charged"), FenceAnswer::done);
  EXPECT_TRUE(guard_->healthy()) << "an answer closes the breaker";
}

TEST_F(GuardedStoreTest, ADeadServerStopsItsOwnKeysAlone) {
  server_->server_count = 3;
  for (const std::size_t dead : {0U, 1U}) {
    server_->dead_server = dead;
    const auto first = static_cast<std::uint8_t>(30 + 31 * dead);
    for (int i = 0; i < kFailuresToOpen; ++i) EXPECT_FALSE(claim(first));
    const int before = server_->calls;
    EXPECT_NE(claim(first).fault().message.find("left alone"), std::string::npos);
    EXPECT_EQ(server_->calls, before) << "asked all the same";
    own(static_cast<std::uint8_t>(first + 1));
    own(static_cast<std::uint8_t>(first + 2));
    EXPECT_TRUE(guard_->healthy()) << "the other servers' keys are taken";
    server_->dead_server = kStoreServersMax;
    for (int i = 0; i < 500 && !claim(first); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_TRUE(claim(first)) << "found again by a look at its own records";
  }
}

TEST_F(GuardedStoreTest, AStoreThatIsBackIsFoundWithoutAnybodyAsking) {
  server_->next = std::deque<Wire>(kFailuresToOpen + 1, Wire::refuses);
  for (int i = 0; i < kFailuresToOpen; ++i) EXPECT_FALSE(claim(1));
  ASSERT_FALSE(guard_->healthy());
  for (int i = 0; i < 500 && !guard_->healthy(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(guard_->healthy());
  own(1);
}

TEST_F(GuardedStoreTest, AnUnreadableRecordIsAnAnswerOfItsServer) {
  server_->finds_what_is_corrupt = true;
  server_->next = std::deque<Wire>(kFailuresToOpen, Wire::refuses);
  for (int i = 0; i < kFailuresToOpen; ++i) EXPECT_FALSE(claim(1));
  for (int i = 0; i < 200 && !guard_->healthy(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  own(2);
}

TEST_F(GuardedStoreTest, AServerIsAskedForWhatItHasNow) {
  server_->server_count = 2;
  server_->dead_server = 1;
  server_->next = std::deque<Wire>(kFailuresToOpen, Wire::refuses);
  for (int i = 0; i < kFailuresToOpen; ++i) EXPECT_FALSE(claim(2));
  server_->moved_to_dead_server = 2;
  for (int i = 0; i < 200 && !claim(4); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  own(6);
}

TEST_F(GuardedStoreTest, WhatWasCompletedHereIsReplayedWithoutTheStore) {
  ASSERT_EQ(*complete(1, own(1), "charged"), FenceAnswer::done);
  server_->next = std::deque<Wire>(100, Wire::refuses);
  const Result<ClaimAnswer> replay = claim(1);
  ASSERT_TRUE(replay);
  const Record& replayed = *std::get<Found>(*replay).record;
  const Record stored = *server_->record(id(1));
  EXPECT_EQ(replayed.state, RecordState::completed);
  EXPECT_EQ(replayed.response->body, "charged");
  EXPECT_EQ(replayed.fingerprint, stored.fingerprint);
  EXPECT_EQ(replayed.fence, stored.fence);
  EXPECT_EQ(replayed.first_received, stored.first_received);
  EXPECT_EQ(replayed.expires_at, stored.expires_at);
  EXPECT_EQ(replayed.claimed_by, stored.claimed_by);
  EXPECT_EQ(replayed.key, "order-1");
}

TEST(OwnClaims, ThoseThatNobodySettledMakeRoomForNewOnes) {
  const auto id = [](std::size_t number) {
    RecordId made;
    std::memcpy(made.bytes.data(), &number, sizeof number);
    return made;
  };
  OwnClaims claims;
  for (std::size_t number = 0; number <= kOwnClaimsMax; ++number) {
    ClaimRequest request;
    request.id = id(number);
    claims.add(std::move(request), Claimed{1, false, kNow});
  }
  EXPECT_FALSE(claims.take({id(0), 1})) << "the oldest";
  EXPECT_TRUE(claims.take({id(1), 1}));
  EXPECT_TRUE(claims.take({id(kOwnClaimsMax), 1})) << "the one that came last";
  EXPECT_FALSE(claims.take({id(1), 1})) << "once";
}

TEST_F(GuardedStoreTest, WhatTheStoreDidNotTakeIsNotReplayed) {
  const std::uint64_t old_fence = own(1);
  server_->time = kNow + Millis{20'000};
  ClaimRequest takeover = request(1);
  takeover.abandoned = Abandoned::take_over;
  ASSERT_TRUE(wait_for<ClaimAnswer>([&](auto done) { server_->claim(takeover, std::move(done)); }));
  EXPECT_EQ(*complete(1, old_fence, "too late"), FenceAnswer::lost);
  EXPECT_EQ(std::get<Found>(*claim(1)).record->state, RecordState::in_progress);
}

TEST_F(GuardedStoreTest, ReplaysComeFromMemoryWhileTheStoreIsDead) {
  const std::uint64_t fence = own(1);
  ASSERT_TRUE(wait_for<FenceAnswer>([&](auto done) {
    server_->complete({id(1), fence}, response("charged"), std::move(done));
  }));
  ASSERT_TRUE(claim(1));
  server_->next = std::deque<Wire>(100, Wire::refuses);
  const Result<ClaimAnswer> replay = claim(1);
  ASSERT_TRUE(replay);
  EXPECT_EQ(std::get<Found>(*replay).record->response->body, "charged");
  server_->time = kNow + Millis{400'000};
  EXPECT_FALSE(claim(1)) << "expired: only the store may say what it is now";
}

TEST_F(GuardedStoreTest, ALevelBelowTheRequiredRefusesClaims) {
  make({.log = log_, .least_durability = Durability::power});
  own(1);
  server_->level = Durability::process;
  EXPECT_FALSE(claim(2));
  EXPECT_FALSE(guard_->healthy());
  server_->level = Durability::power;
  own(2);
}

} // namespace
} // namespace oncekey
