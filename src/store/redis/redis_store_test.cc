// The store on a real server. What every store must do is in tests/conformance; here is what is Redis' own: how calls
// end when connections, scripts and servers go away under them.
#include "support/redis_store_fixture.h"

#include <atomic>
#include <functional>
#include <future>
#include <mutex>
#include <set>

namespace oncekey::redis::store_tests {
namespace {

// Storms and limits. Calls that are made from a callback wait in the queue until it returns, since it runs on the
// thread that sends them.

// Runs `calls` on the store's own thread.
void on_the_loop(Store& store, const std::function<void()>& calls) {
  std::promise<void> ran;
  store.find(random_id(), Interest::none, [&](const Result<std::optional<Found>>&) {
    calls();
    ran.set_value();
  });
  ran.get_future().wait();
}

// A loop that does the store's work calls back on its own thread; without one the store's thread does so again.
TEST_F(RedisServer, WorksOnTheLoopThatItIsGiven) {
  const auto store = open();
  Loop loop;
  for (int turn = 0; turn < 2; ++turn) {
    store->write_from(&loop);
    std::optional<std::thread::id> answered_by;
    store->claim(claim_of(random_id()), [&](const Result<ClaimAnswer>& answer) {
      EXPECT_TRUE(answer);
      answered_by = std::this_thread::get_id();
    });
    loop.run_until([&] { return answered_by.has_value(); });
    EXPECT_EQ(answered_by, std::this_thread::get_id());
    store->write_from(nullptr);
    EXPECT_TRUE(claims(*store));
  }
}

TEST_F(RedisServer, AnswersAllCallsWhenItIsClosedWhileALoopWorksForIt) {
  Loop loop;
  auto store = open();
  store->write_from(&loop);
  bool answered = false;
  store->claim(claim_of(random_id()), [&](const Result<ClaimAnswer>&) { answered = true; });
  store.reset();
  EXPECT_TRUE(answered);
  loop.poll();
}

TEST_F(RedisServer, AStormOfClaimsOfACompletedKeyIsOneCommand) {
  const auto store = open();
  const RecordId id = random_id();
  ASSERT_TRUE(claim(*store, id));
  ASSERT_TRUE(complete(*store, id, fence_of(*store, id), "answer"));
  constexpr int kClaims = 200;
  std::atomic<int> answered = 0;
  std::uint64_t before = 0;
  on_the_loop(*store, [&] {
    before = store->stats().writes;
    for (int i = 0; i < kClaims; ++i) {
      store->claim(claim_of(id), [&](const Result<ClaimAnswer>& answer) {
        EXPECT_EQ(std::get<Found>(*answer).record->response->body, "answer");
        ++answered;
      });
    }
  });
  EXPECT_TRUE(eventually([&] { return answered == kClaims; }));
  EXPECT_EQ(store->stats().writes - before, 1u);
}

TEST_F(RedisServer, AStormOfFirstClaimsHasOneOwnerAndTheOthersShareOneAnswer) {
  const auto store = open();
  const RecordId id = random_id();
  constexpr int kClaims = 200;
  std::atomic<int> owners = 0;
  std::atomic<int> answered = 0;
  std::uint64_t before = 0;
  on_the_loop(*store, [&] {
    before = store->stats().writes;
    for (int i = 0; i < kClaims; ++i) {
      store->claim(claim_of(id), [&](const Result<ClaimAnswer>& answer) {
        if (std::holds_alternative<Claimed>(*answer)) ++owners;
        ++answered;
      });
    }
  });
  EXPECT_TRUE(eventually([&] { return answered == kClaims; }));
  EXPECT_EQ(owners, 1);
  EXPECT_EQ(store->stats().writes - before, 2u);
}

TEST_F(RedisServer, AClaimThatWouldTakeOverAsksForItself) {
  const auto store = open();
  const RecordId id = random_id();
  ClaimRequest abandoned = claim_of(id);
  abandoned.lease = Millis{0};
  ASSERT_TRUE(wait_for_answer<ClaimAnswer>([&](auto done) { store->claim(abandoned, std::move(done)); }));
  std::promise<Result<ClaimAnswer>> left;
  std::promise<Result<ClaimAnswer>> taken;
  on_the_loop(*store, [&] {
    store->claim(claim_of(id), [&](Result<ClaimAnswer> answer) { left.set_value(std::move(answer)); });
    ClaimRequest request = claim_of(id);
    request.abandoned = Abandoned::take_over;
    store->claim(request, [&](Result<ClaimAnswer> answer) { taken.set_value(std::move(answer)); });
  });
  const Result<ClaimAnswer> found = left.get_future().get();
  const Result<ClaimAnswer> owned = taken.get_future().get();
  ASSERT_TRUE(found && owned);
  EXPECT_TRUE(std::holds_alternative<Found>(*found));
  ASSERT_TRUE(std::holds_alternative<Claimed>(*owned));
  EXPECT_TRUE(std::get<Claimed>(*owned).took_over);
}

TEST_F(RedisServer, ACallThatHasWaitedTooLongIsNotSent) {
  constexpr Millis kTimeout{1000};
  Result<std::unique_ptr<Store>> opened = open_redis({.url = url(), .log = log_, .call_timeout = kTimeout});
  ASSERT_TRUE(opened) << opened.fault().message;
  Store& store = **opened;
  std::promise<Result<ClaimAnswer>> claimed;
  on_the_loop(store, [&] {
    store.claim(claim_of(random_id()), [&](Result<ClaimAnswer> answer) { claimed.set_value(std::move(answer)); });
    const auto late = std::chrono::steady_clock::now() + kTimeout;
    while (std::chrono::steady_clock::now() <= late) std::this_thread::yield();
  });
  const Result<ClaimAnswer> answer = claimed.get_future().get();
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.fault().kind, FaultKind::unavailable) << answer.fault().message;
  EXPECT_TRUE(claims(store));
}

TEST_F(RedisServer, CallsWithoutABodyAreNotRefusedForBytes) {
  const Result<std::unique_ptr<Store>> roomy = open_redis({.url = url(), .log = log_});
  const Result<std::unique_ptr<Store>> full = open_redis({.url = url(), .log = log_, .queue_limits = {.bytes_max = 0}});
  ASSERT_TRUE(roomy && full);
  const RecordId id = random_id();
  ASSERT_TRUE(claim(**roomy, id));
  const Ownership owner{id, fence_of(**roomy, id)};
  EXPECT_FALSE(claim(**full, random_id()));
  EXPECT_FALSE(complete(**full, owner));
  EXPECT_TRUE(find(**full, id));
  EXPECT_TRUE(wait_for_answer<FenceAnswer>([&](auto done) { (*full)->renew(owner, Millis{60'000}, std::move(done)); }));
  EXPECT_TRUE(wait_for_answer<FenceAnswer>([&](auto done) { (*full)->release(owner, std::move(done)); }));
}

TEST_F(RedisServer, AFullQueueRefusesClaimsAndStillTakesCompletions) {
  Result<std::unique_ptr<Store>> opened = open_redis({.url = url(), .log = log_, .queue_limits = {.calls_max = 10}});
  ASSERT_TRUE(opened) << opened.fault().message;
  Store& store = **opened;
  const RecordId id = random_id();
  const Result<ClaimAnswer> owned = claim(store, id);
  ASSERT_TRUE(owned);
  const std::uint64_t fence = std::get<Claimed>(*owned).fence;
  std::atomic<int> refused = 0;
  std::atomic<int> answered = 0;
  std::promise<Result<FenceAnswer>> completed;
  on_the_loop(store, [&] {
    for (int i = 0; i < 20; ++i) {
      store.claim(claim_of(random_id()), [&](const Result<ClaimAnswer>& answer) {
        if (!answer) {
          EXPECT_THAT(answer.fault().message, HasSubstr("overloaded"));
          ++refused;
        }
        ++answered;
      });
    }
    StoredResponse response;
    response.status = 200;
    store.complete({id, fence}, response, [&](Result<FenceAnswer> answer) { completed.set_value(std::move(answer)); });
  });
  const Result<FenceAnswer> done = completed.get_future().get();
  ASSERT_TRUE(done) << done.fault().message;
  EXPECT_EQ(*done, FenceAnswer::done);
  EXPECT_TRUE(eventually([&] { return answered == 20; }));
  EXPECT_GE(refused, 10);
  EXPECT_LT(refused, 20);
  EXPECT_TRUE(claims(store)) << "there is room again";
}

// Time and expiry are the server's.

TEST_F(RedisServer, TheClockIsTheServers) {
  const auto store = open();
  const OwnedReply time = console_->ask({"TIME"});
  const Time there{Millis{*time.look()[0].integer() * 1000}};
  const Result<ClaimAnswer> answer = claim(*store, random_id());
  ASSERT_TRUE(answer);
  EXPECT_LT(std::chrono::abs(std::get<Claimed>(*answer).now - there), std::chrono::seconds(10));
  EXPECT_LT(std::chrono::abs(store->now() - there), std::chrono::seconds(10));
}

TEST_F(RedisServer, ExpiredRecordsAreDroppedByRedis) {
  const auto store = open();
  const RecordId id = random_id();
  ASSERT_TRUE(claim(*store, id));
  const auto after_claim = console_->ask({"PTTL", key_of(id)});
  EXPECT_NEAR(static_cast<double>(*after_claim.look().integer()), 3'600'000, 10'000);
  ASSERT_EQ(*complete(*store, id, fence_of(*store, id)), FenceAnswer::done);
  const auto after_completion = console_->ask({"PTTL", key_of(id)});
  EXPECT_NEAR(static_cast<double>(*after_completion.look().integer()), 3'600'000, 10'000);
}

TEST_F(RedisServer, AnOwnerOwnsNothingOfARecordThatHasItsFenceByAccident) {
  const auto here = open();
  const auto there = open();
  const RecordId id = random_id();
  const auto claim_as = [&](Store& store, std::uint8_t token) {
    ClaimRequest request = claim_of(id);
    request.token.fill(token);
    const auto answer = wait_for_answer<ClaimAnswer>([&](auto done) { store.claim(request, std::move(done)); });
    return Ownership{id, std::get<Claimed>(*answer).fence, request.token};
  };
  // As after a failover that lost the claim, to a replica whose clock is behind.
  const auto counter_is_ahead = [&] { console_->ask({"HSET", marker(), "fence", "8000000000000000"}); };
  counter_is_ahead();
  const Ownership paused = claim_as(*here, 1);
  console_->ask({"DEL", key_of(id)});
  counter_is_ahead();
  const Ownership next = claim_as(*there, 2);
  ASSERT_EQ(paused.fence, next.fence) << "they differ: the test shows nothing";
  EXPECT_EQ(*wait_for_answer<FenceAnswer>([&](auto done) { here->renew(paused, Millis{60'000}, std::move(done)); }),
            FenceAnswer::lost);
  EXPECT_EQ(*wait_for_answer<FenceAnswer>([&](auto done) { here->hold(paused, Holder::owner, std::move(done)); }),
            FenceAnswer::lost);
  EXPECT_EQ(*complete(*here, paused, "ours"), FenceAnswer::lost);
  EXPECT_EQ(*wait_for_answer<FenceAnswer>([&](auto done) { here->release(paused, std::move(done)); }),
            FenceAnswer::lost);
  EXPECT_EQ(*complete(*there, next, "theirs"), FenceAnswer::done);
  EXPECT_EQ((*find(*here, id))->record->response->body, "theirs");
}

TEST_F(RedisServer, ADatabaseIsAStoreOfItsOwn) {
  const auto here = open();
  const auto there = *try_open(fmt::format("redis://{}/3?prefix={}", to_string(console_->host()), prefix_));
  const RecordId id = random_id();
  ASSERT_TRUE(claim(*here, id));
  EXPECT_FALSE(*find(*there, id));
}

// Corners of the verbs.

TEST_F(RedisServer, AFinderCannotHoldWhatAnOperatorLetsRunAgain) {
  const auto store = open();
  const RecordId id = random_id();
  ASSERT_TRUE(claim(*store, id));
  const std::uint64_t fence = fence_of(*store, id);
  const auto hold = [&](Holder by) {
    return *wait_for_answer<FenceAnswer>([&](auto done) { store->hold({id, fence}, by, std::move(done)); });
  };
  ASSERT_EQ(hold(Holder::owner), FenceAnswer::done);
  ASSERT_EQ(operate(*store, id, OperatorAction::rerun), OperatorAnswer::done);
  EXPECT_EQ(hold(Holder::finder), FenceAnswer::lost);
}

TEST_F(RedisServer, GatewaysSeeEachOtherUntilOneIsSilentForLong) {
  Time now = std::chrono::floor<Millis>(std::chrono::system_clock::now());
  const RedisOptions options{.url = url(), .log = log_, .clock = [&now] { return now; }};
  const auto first = *open_redis(options);
  const auto second = *open_redis(options);
  const auto beat = [](Store& store, const std::string& instance) {
    const GatewayBeat mine{instance, "gw-" + instance, "1", "ready", Time{}, {}};
    const auto known = wait_for_answer<std::vector<GatewayBeat>>([&](auto done) { store.beat(mine, std::move(done)); });
    std::vector<std::string> names;
    for (const GatewayBeat& each : *known) names.push_back(each.name);
    return names;
  };
  beat(*first, "a");
  EXPECT_EQ(beat(*second, "b"), (std::vector<std::string>{"gw-a", "gw-b"}));
  now += kGatewayForgottenAfter + Millis(1);
  EXPECT_EQ(beat(*second, "b"), std::vector<std::string>{"gw-b"});
}

TEST_F(RedisServer, ForAnOperatorAReleasedRecordIsAbsent) {
  const auto store = open();
  const RecordId id = random_id();
  ASSERT_TRUE(claim(*store, id));
  const std::uint64_t fence = fence_of(*store, id);
  ASSERT_TRUE(wait_for_answer<FenceAnswer>([&](auto done) { store->release({id, fence}, std::move(done)); }));
  EXPECT_EQ(operate(*store, id, OperatorAction::rerun), OperatorAnswer::absent);
}

TEST_F(RedisServer, AStreamedAnswerWasSettledWhenItBegan) {
  Time now = std::chrono::floor<Millis>(std::chrono::system_clock::now());
  const auto store = *open_redis({.url = url(), .log = log_, .clock = [&now] { return now; }});
  const RecordId id = random_id();
  ASSERT_TRUE(claim(*store, id));
  const std::uint64_t fence = fence_of(*store, id);
  StoredResponse response;
  response.status = 200;
  response.omitted.emplace();
  const auto complete_with = [&] {
    return *wait_for_answer<FenceAnswer>([&](auto done) { store->complete({id, fence}, response, std::move(done)); });
  };
  const Time began = now;
  ASSERT_EQ(complete_with(), FenceAnswer::done);
  now += std::chrono::seconds(5);
  response.omitted->whole = true;
  ASSERT_EQ(complete_with(), FenceAnswer::done);
  EXPECT_EQ((*find(*store, id))->record->settled_at, began);
}

// Connections and scripts.

TEST_F(RedisServer, FlushedScriptsAreLoadedAgainAndNobodyNotices) {
  const auto store = open();
  Crowd crowd(*store, 8);
  for (int i = 0; i < 40; ++i) {
    console_->ask({"SCRIPT", "FLUSH"});
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  crowd.stop();
  crowd.check();
  EXPECT_GT(crowd.done(), 0u);
  EXPECT_EQ(crowd.refused() + crowd.unknown(), 0u);
}

TEST_F(RedisServer, CutConnectionsLeaveNoWrongAnswers) {
  const auto store = open();
  Crowd crowd(*store, 16);
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    cut_connections();
  }
  EXPECT_TRUE(eventually([&] { return claims(*store); })) << "it recovers";
  crowd.stop();
  crowd.check();
  EXPECT_GT(crowd.done(), 0u);
  EXPECT_GT(crowd.refused() + crowd.unknown(), 0u) << "nothing was cut: the test shows nothing";
}

TEST_F(RedisServer, AServerThatDoesNotAnswerCostsItsTimeoutOnceAndThenNothing) {
  const auto store = open("&call_timeout=300ms");
  ASSERT_TRUE(claims(*store));
  console_->ask({"CLIENT", "PAUSE", "2500", "ALL"});
  EXPECT_EQ(claim(*store, random_id()).fault().kind, FaultKind::timeout);
  // Not sent any more: a call that waits for the server would be told `timeout`.
  EXPECT_EQ(claim(*store, random_id()).fault().kind, FaultKind::unavailable);
  EXPECT_TRUE(eventually([&] { return claims(*store); }));
  EXPECT_TRUE(eventually([&] { return store->healthy().ok(); }));
}

TEST_F(RedisServer, WhatTimedOutMayHaveHappened) {
  const auto store = open("&call_timeout=200ms");
  // The server is busy with another client's script; what reaches it meanwhile is executed afterwards, also where a
  // slow machine takes longer for it than Redis would wait before it refuses others.
  console_->ask({"CONFIG", "SET", "busy-reply-threshold", "0"});
  std::jthread busy([host = console_->host()] {
    Console(host).ask({"EVAL", "for i = 1, 1500000 do redis.call('TIME') end", "0"});
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const RecordId id = random_id();
  const Result<ClaimAnswer> answer = claim(*store, id);
  ASSERT_FALSE(answer) << "the server was not busy for long enough: the test shows nothing";
  EXPECT_EQ(answer.fault().kind, FaultKind::timeout);
  EXPECT_TRUE(eventually([&] {
    const Result<std::optional<Found>> found = find(*store, id);
    return found && found->has_value();
  }));
  console_->ask({"CONFIG", "SET", "busy-reply-threshold", "5000"});
}

TEST_F(RedisServer, ClosingAnswersWhatWaits) {
  std::promise<Result<ClaimAnswer>> promise;
  auto store = open();
  console_->ask({"CLIENT", "PAUSE", "500", "ALL"});
  store->claim(claim_of(random_id()), [&](Result<ClaimAnswer> answer) { promise.set_value(std::move(answer)); });
  store.reset();
  EXPECT_FALSE(promise.get_future().get());
}

// Logins and settings.

TEST_F(RedisServer, AWrongPasswordIsSaidAndNotShown) {
  const std::string message = refusal(fmt::format("redis://nobody:wrong-secret@{}/0", to_string(console_->host())));
  EXPECT_THAT(message, HasSubstr("refuses the login"));
  EXPECT_THAT(message, HasSubstr(to_string(console_->host())));
  EXPECT_THAT(message, Not(HasSubstr("wrong-secret")));
}

TEST_F(RedisServer, AUserWithoutConfigGetsTheLowestLevel) {
  console_->ask({"ACL", "SETUSER", "modest", "on", ">p%w", "~*", "&*", "+@all", "-config"});
  const auto store =
      *try_open(fmt::format("redis://modest:p%25w@{}/0?prefix={}", to_string(console_->host()), prefix_));
  EXPECT_TRUE(claims(*store));
  EXPECT_EQ(store->durability(), Durability::none);
}

TEST_F(RedisServer, AServerThatIsNotThereIsNamed) {
  const std::string message = refusal("redis://127.0.0.1:1/0");
  EXPECT_THAT(message, HasSubstr("127.0.0.1:1"));
  EXPECT_THAT(message, HasSubstr("refused"));
}

TEST_F(RedisServer, AServerThatIsNoClusterIsNotUsedAsOne) {
  EXPECT_THAT(refusal(fmt::format("redis+cluster://{}/", to_string(console_->host()))), HasSubstr("redis://"));
}

// Announcements.

// What a store has told, also when it tells it after the test is over.
class News {
 public:
  explicit News(Store& store) {
    store.announce_to([told = told_](const std::optional<RecordId>& settled) {
      const std::lock_guard lock(told->mutex);
      if (settled) {
        told->settled.insert(*settled);
      } else {
        ++told->anything;
      }
    });
  }
  bool has(const RecordId& id) const {
    const std::lock_guard lock(told_->mutex);
    return told_->settled.contains(id);
  }
  int anything() const {
    const std::lock_guard lock(told_->mutex);
    return told_->anything;
  }

 private:
  struct Told {
    std::mutex mutex;
    std::set<RecordId> settled;
    int anything = 0;
  };
  const std::shared_ptr<Told> told_ = std::make_shared<Told>();
};

TEST_F(RedisServer, WhatIsSettledElsewhereIsTold) {
  const auto here = open();
  const auto there = open();
  const News news(*there);
  const RecordId awaited = random_id();
  const RecordId ignored = random_id();
  for (const RecordId& id : {awaited, ignored}) ASSERT_TRUE(claim(*here, id));
  ASSERT_TRUE(find(*there, awaited, Interest::settling));
  ASSERT_TRUE(find(*there, ignored, Interest::none));
  ASSERT_EQ(*complete(*here, ignored, fence_of(*here, ignored)), FenceAnswer::done);
  ASSERT_EQ(*complete(*here, awaited, fence_of(*here, awaited)), FenceAnswer::done);
  EXPECT_TRUE(eventually([&] { return news.has(awaited); }));
  EXPECT_FALSE(news.has(ignored)) << "no request waits for it";
}

TEST_F(RedisServer, AfterAGapAnythingMayHaveHappened) {
  const auto store = open();
  const News news(*store);
  const RecordId id = random_id();
  ASSERT_TRUE(claim(*store, id));
  ASSERT_TRUE(find(*store, id, Interest::settling));
  const int before = news.anything();
  console_->ask({"CLIENT", "KILL", "TYPE", "pubsub"});
  EXPECT_TRUE(eventually([&] {
    const bool told = news.anything() > before;
    return told || !find(*store, id, Interest::settling);
  }));
  EXPECT_GT(news.anything(), before);
}

} // namespace
} // namespace oncekey::redis::store_tests
