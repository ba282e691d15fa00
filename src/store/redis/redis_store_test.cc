// The store on real servers, whose URLs are in ONCEKEY_TEST_REDIS and ONCEKEY_TEST_REDIS_CLUSTER (tests/support/
// with_servers.py starts them). What every store must do is in tests/conformance; here is what is Redis' own: how calls
// end when connections, scripts, slots and primaries go away under them.
#include "store/redis/redis_store.h"

#include "base/crypto.h"
#include "redis/connection.h"
#include "store/redis/slots.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <thread>

namespace oncekey::redis {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A connection of the test's own, one command at a time.
class Console {
 public:
  explicit Console(const Host& host) : host_(host) {
    RedisUrl url;
    url.hosts = {host};
    client_ = *BlockingClient::make(std::move(url), std::chrono::seconds(60));
  }

  OwnedReply ask(std::initializer_list<std::string_view> words) {
    const std::vector<std::string> commands{command(words)};
    return *std::move(client_->run(commands).front());
  }
  std::string text(std::initializer_list<std::string_view> words) { return std::string(ask(words).look().text()); }
  void set(std::string_view name, std::string_view value) { EXPECT_EQ(text({"CONFIG", "SET", name, value}), "OK"); }
  const Host& host() const { return host_; }

 private:
  const Host host_;
  std::unique_ptr<BlockingClient> client_;
};

template <class Condition>
bool eventually(Condition condition, std::chrono::seconds patience = std::chrono::seconds(15)) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

template <class T, class Start>
Result<T> wait_for_answer(Start start) {
  std::promise<Result<T>> promise;
  std::future<Result<T>> answer = promise.get_future();
  start([&promise](Result<T> result) { promise.set_value(std::move(result)); });
  return answer.get();
}

RecordId random_id() {
  RecordId id;
  fill_random(id.bytes);
  return id;
}

ClaimRequest claim_of(const RecordId& id) {
  ClaimRequest request;
  request.id = id;
  request.lease = std::chrono::seconds(60);
  request.retention = std::chrono::hours(1);
  return request;
}

Result<ClaimAnswer> claim(Store& store, const RecordId& id) {
  return wait_for_answer<ClaimAnswer>([&](auto done) { store.claim(claim_of(id), std::move(done)); });
}
Result<std::optional<Found>> find(Store& store, const RecordId& id, Interest interest = Interest::none) {
  return wait_for_answer<std::optional<Found>>([&](auto done) { store.find(id, interest, std::move(done)); });
}
std::uint64_t fence_of(Store& store, const RecordId& id) { return (*find(store, id))->record->fence; }
Result<FenceAnswer> complete(Store& store, const Ownership& owner, const std::string& body = "x") {
  StoredResponse response;
  response.status = 200;
  response.body = body;
  return wait_for_answer<FenceAnswer>([&](auto done) { store.complete(owner, response, std::move(done)); });
}
Result<FenceAnswer> complete(Store& store, const RecordId& id, std::uint64_t fence, const std::string& body = "x") {
  return complete(store, {id, fence}, body);
}
OperatorAnswer operate(Store& store, const RecordId& id, OperatorAction action) {
  return *wait_for_answer<OperatorAnswer>([&](auto done) { store.operate(id, action, {}, std::move(done)); });
}
bool claims(Store& store) {
  const Result<ClaimAnswer> answer = claim(store, random_id());
  return answer && std::holds_alternative<Claimed>(*answer);
}

std::string refusal_to_claim(Store& store) {
  const Result<ClaimAnswer> answer = claim(store, random_id());
  return answer ? "it was not refused" : answer.fault().message;
}

// Threads that claim, complete and claim again until they are stopped, and remember what they were told.
class Crowd {
 public:
  Crowd(Store& store, int threads) : store_(store) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }
  ~Crowd() { stop(); }
  void stop() {
    stopped_ = true;
    threads_.clear();
  }
  std::uint64_t done() const { return done_; }

  // Every answer that was given counts, and every refusal did nothing. After stop().
  void check() {
    for (const RecordId& id : completed_) {
      const Result<std::optional<Found>> found = find(store_, id);
      ASSERT_TRUE(found) << found.fault().message;
      ASSERT_TRUE(*found) << "an answered completion is gone";
      EXPECT_EQ((*found)->record->state, RecordState::completed);
    }
    for (const RecordId& id : refused_) {
      const Result<std::optional<Found>> found = find(store_, id);
      ASSERT_TRUE(found) << found.fault().message;
      EXPECT_FALSE(*found) << "a claim that was refused has happened";
    }
    EXPECT_EQ(wrong_, 0u) << "a second owner, a lost owner, or a fault of another kind";
  }
  std::size_t refused() const { return refused_.size(); }
  std::size_t unknown() const { return unknown_; }

 private:
  void work() {
    while (!stopped_) {
      const RecordId id = random_id();
      const Result<ClaimAnswer> claimed = claim(store_, id);
      if (!claimed) {
        note_fault(claimed.fault(), id);
        continue;
      }
      const Claimed* const owned = std::get_if<Claimed>(&*claimed);
      if (owned == nullptr) {
        ++wrong_;
        continue;
      }
      const Result<FenceAnswer> completed = complete(store_, id, owned->fence);
      if (!completed) {
        ++unknown_;
        continue;
      }
      if (*completed != FenceAnswer::done) ++wrong_;
      const Result<ClaimAnswer> again = claim(store_, id);
      if (again && std::holds_alternative<Claimed>(*again)) ++wrong_;
      const std::lock_guard lock(mutex_);
      completed_.push_back(id);
      ++done_;
    }
  }
  void note_fault(const Fault& fault, const RecordId& id) {
    if (fault.kind == FaultKind::unavailable) {
      const std::lock_guard lock(mutex_);
      if (refused_.size() < 2000) refused_.push_back(id);
    } else if (fault.kind == FaultKind::timeout) {
      ++unknown_;
    } else {
      ++wrong_;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  Store& store_;
  std::atomic<bool> stopped_{false};
  std::atomic<std::uint64_t> done_{0};
  std::atomic<std::uint64_t> wrong_{0};
  std::atomic<std::uint64_t> unknown_{0};
  std::mutex mutex_;
  std::vector<RecordId> completed_;
  std::vector<RecordId> refused_;
  std::vector<std::jthread> threads_;
};

class RedisServer : public ::testing::Test {
 protected:
  explicit RedisServer(const char* variable = "ONCEKEY_TEST_REDIS") : server_(std::getenv(variable)) {}

  void SetUp() override {
    if (server_ == nullptr) GTEST_SKIP() << "needs a server: tests/support/with_servers.py";
    prefix_ = fmt::format("test-{:016x}", random_u64());
    console_ = std::make_unique<Console>(parse_url(server_)->hosts[0]);
  }
  void TearDown() override {
    if (!console_) return;
    for (const auto& [name, value] : {std::pair{"maxmemory", "0"}, std::pair{"maxmemory-policy", "noeviction"},
                                      std::pair{"appendfsync", "always"}}) {
      console_->set(name, value);
    }
  }

  std::string url(std::string_view settings = "") const {
    return fmt::format("{}?prefix={}{}", server_, prefix_, settings);
  }
  Result<std::unique_ptr<Store>> try_open(const std::string& at) { return open_redis({.url = at, .log = log_}); }
  std::unique_ptr<Store> open(std::string_view settings = "") {
    Result<std::unique_ptr<Store>> opened = try_open(url(settings));
    if (opened) return *std::move(opened);
    ADD_FAILURE() << opened.fault().message;
    return nullptr;
  }
  std::string refusal(const std::string& at) {
    const Result<std::unique_ptr<Store>> opened = try_open(at);
    return opened ? "it was opened" : opened.fault().message;
  }
  std::string key_of(const RecordId& id) const { return KeyNames(prefix_, 1).record(id); }
  std::string marker() const { return KeyNames(prefix_, 1).marker(0); }
  void cut_connections() { console_->ask({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"}); }

  const char* const server_;
  std::string prefix_;
  std::unique_ptr<Console> console_;
  Log log_{LogLevel::error};
};

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
  // The server is busy with another client's script; what reaches it meanwhile is executed afterwards, also where a slow
  // machine takes longer for it than Redis would wait before it refuses others.
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

TEST_F(RedisServer, TheLevelFollowsTheSettings) {
  const auto store = open();
  EXPECT_EQ(store->durability(), Durability::power);
  console_->set("appendfsync", "everysec");
  EXPECT_TRUE(eventually([&] { return store->durability() == Durability::none; }));
  console_->set("appendfsync", "always");
  cut_connections();
  EXPECT_TRUE(eventually([&] { return store->durability() == Durability::power; })) << "looked at when connected";
}

TEST_F(RedisServer, AnEvictingServerIsRefusedAndNoticedLater) {
  const auto store = open();
  console_->set("maxmemory-policy", "allkeys-lru");
  EXPECT_THAT(refusal(url()), HasSubstr("noeviction"));
  EXPECT_TRUE(eventually([&] { return !store->healthy(); }));
  EXPECT_THAT(claim(*store, random_id()).fault().message, HasSubstr("allkeys-lru"));
  console_->set("maxmemory-policy", "noeviction");
  EXPECT_TRUE(eventually([&] { return claims(*store); }));
}

TEST_F(RedisServer, WhatWasEvictedIsALossAlsoWhenThePolicyIsRightAgain) {
  const auto store = open();
  const auto other = open();
  const RecordId evicted = random_id();
  ASSERT_TRUE(claim(*store, evicted));
  console_->set("maxmemory-policy", "volatile-ttl");
  console_->set("maxmemory", "1");
  EXPECT_TRUE(eventually([&] { return console_->ask({"EXISTS", key_of(evicted)}).look().integer() == 0; }));
  console_->set("maxmemory", "0");
  console_->set("maxmemory-policy", "noeviction");
  const auto knows = [](Store& each) { return refusal_to_claim(each).find("has evicted") != std::string::npos; };
  EXPECT_TRUE(eventually([&] { return knows(*store) && knows(*other); }));
  EXPECT_THAT(store->healthy().fault().message, HasSubstr("accept-loss"));
  EXPECT_TRUE(eventually([&] { return console_->text({"HGET", KeyNames(prefix_, 1).meta(), "lost"}) == "1"; }));
  EXPECT_THAT(refusal_to_claim(*open()), HasSubstr("lost its memory")) << "a gateway that starts later is told";
  ASSERT_TRUE(accept_lost_memory_redis({.url = url(), .log = log_}));
  EXPECT_TRUE(eventually([&] { return claims(*store) && claims(*other); }));
  cut_connections();
  EXPECT_TRUE(eventually([&] { return claims(*store) && claims(*other); })) << "what is accepted is not found again";
}

TEST_F(RedisServer, AFullServerRefusesAndNothingHappens) {
  const auto store = open();
  const RecordId owned = random_id();
  ASSERT_TRUE(claim(*store, owned));
  console_->set("maxmemory", "1");
  const RecordId id = random_id();
  const Result<ClaimAnswer> refused = claim(*store, id);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.fault().kind, FaultKind::unavailable);
  EXPECT_THAT(refused.fault().message, HasSubstr("OOM"));
  EXPECT_THAT(refused.fault().message, HasSubstr("raise maxmemory"));
  EXPECT_EQ(complete(*store, owned, fence_of(*store, owned)).fault().kind, FaultKind::unavailable);
  EXPECT_TRUE(*find(*store, owned)) << "reading is possible";
  console_->set("maxmemory", "0");
  EXPECT_FALSE(*find(*store, id));
  EXPECT_EQ(*complete(*store, owned, fence_of(*store, owned)), FenceAnswer::done);
}

TEST_F(RedisServer, WithoutTheReplicasToWaitForNothingCounts) {
  const auto store = open("&wait=1&call_timeout=400ms");
  const Result<ClaimAnswer> answer = claim(*store, random_id());
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.fault().kind, FaultKind::timeout) << "it may have happened";
  EXPECT_THAT(answer.fault().message, HasSubstr("replicas"));
}

TEST_F(RedisServer, AForeignValueUnderOurNameIsAFaultAndNotACrash) {
  const auto store = open();
  const RecordId short_one = random_id();
  const RecordId list_one = random_id();
  const RecordId new_one = random_id();
  console_->ask({"SET", key_of(short_one), "hello"});
  console_->ask({"LPUSH", key_of(list_one), "hello"});
  console_->ask({"SET", key_of(new_one), std::string(200, '\2')});
  EXPECT_EQ(claim(*store, short_one).fault().kind, FaultKind::corrupt);
  EXPECT_EQ(claim(*store, list_one).fault().kind, FaultKind::corrupt);
  EXPECT_EQ(find(*store, new_one).fault().kind, FaultKind::newer_format);
  EXPECT_TRUE(claims(*store));
}

// Memory.

TEST_F(RedisServer, AFlushedServerIsNoticedAndRefusedUntilTheLossIsAccepted) {
  const auto store = open();
  const RecordId forgotten = random_id();
  ASSERT_TRUE(claim(*store, forgotten));
  const std::uint64_t before = fence_of(*store, forgotten);
  console_->ask({"FLUSHALL"});
  EXPECT_FALSE(claim(*store, forgotten)) << "noticed by the claim itself, at once";
  EXPECT_THAT(store->healthy().fault().message, HasSubstr("accept-loss"));
  // A gateway that starts now is told as well, by those that were there before.
  const auto later = [&] {
    EXPECT_TRUE(eventually([&] { return console_->text({"HGET", KeyNames(prefix_, 1).meta(), "lost"}) == "1"; }));
    return open();
  }();
  EXPECT_FALSE(claims(*later));
  ASSERT_TRUE(accept_lost_memory_redis({.url = url(), .log = log_}));
  EXPECT_TRUE(eventually([&] { return claims(*store) && claims(*later); }));
  EXPECT_TRUE(store->healthy());
  EXPECT_EQ(store->secret(), later->secret());
  EXPECT_GT(std::get<Claimed>(*claim(*store, forgotten)).fence, before) << "the counter was lost and began again";
}

TEST_F(RedisServer, ASecretThatDoesNotFitItsCheckValueIsRefused) {
  ASSERT_TRUE(open());
  std::string secret = console_->text({"HGET", KeyNames(prefix_, 1).meta(), "secret"});
  secret[5] ^= 1;
  console_->ask({"HSET", KeyNames(prefix_, 1).meta(), "secret", secret});
  EXPECT_THAT(refusal(url()), HasSubstr("does not fit its check value"));
}

TEST_F(RedisServer, AMarkerFromThePastIsALoss) {
  const auto store = open();
  EXPECT_TRUE(eventually([&] { return console_->text({"HGET", marker(), "tick"}) > "2"; }));
  console_->ask({"HSET", marker(), "tick", "0"});
  EXPECT_TRUE(eventually([&] { return !store->healthy(); }));
  EXPECT_THAT(claim(*store, random_id()).fault().message, HasSubstr("lost its memory"));
  ASSERT_TRUE(accept_lost_memory_redis({.url = url(), .log = log_}));
  EXPECT_TRUE(eventually([&] { return claims(*store); }));
}

TEST_F(RedisServer, AnOlderCopyIsNoticedByTheClaimItselfAndNothingHappens) {
  const auto store = open();
  EXPECT_TRUE(eventually([&] { return console_->text({"HGET", marker(), "tick"}) > "2"; }));
  ASSERT_TRUE(find(*store, random_id())) << "any answer tells the tick";
  console_->ask({"HSET", marker(), "tick", "1"});
  const RecordId id = random_id();
  const Result<ClaimAnswer> refused = claim(*store, id);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.fault().message, HasSubstr("it is at tick 1 and was at"));
  EXPECT_EQ(console_->ask({"EXISTS", key_of(id)}).look().integer(), 0);
  EXPECT_EQ(console_->text({"HGET", marker(), "tick"}), "1") << "others must be able to notice it as well";
  // With a marker that has replaced one before it is no different.
  ASSERT_TRUE(accept_lost_memory_redis({.url = url(), .log = log_}));
  EXPECT_TRUE(eventually([&] { return claims(*store); }));
  EXPECT_TRUE(eventually([&] { return console_->text({"HGET", marker(), "tick"}) > "1"; }));
  ASSERT_TRUE(find(*store, random_id()));
  console_->ask({"HSET", marker(), "tick", "0"});
  EXPECT_FALSE(claims(*store));
}

TEST_F(RedisServer, AFullServerThatCannotCountHasNotForgotten) {
  const auto store = open();
  EXPECT_TRUE(eventually([&] { return console_->text({"HGET", marker(), "tick"}) > "1"; }));
  console_->set("maxmemory", "1");
  const std::string tick = console_->text({"HGET", marker(), "tick"});
  std::this_thread::sleep_for(std::chrono::milliseconds(1500)); // longer than from one tick to the next
  ASSERT_TRUE(find(*store, random_id()));
  EXPECT_EQ(console_->text({"HGET", marker(), "tick"}), tick) << "it was counted: the test shows nothing";
  EXPECT_TRUE(store->healthy());
  console_->set("maxmemory", "0");
  EXPECT_TRUE(claims(*store));
}

TEST_F(RedisServer, AStoreMadeAnewWithAnotherSecretIsNotOurs) {
  const auto store = open();
  for (const std::string& key : {marker(), KeyNames(prefix_, 1).meta()}) console_->ask({"DEL", key});
  ASSERT_TRUE(accept_lost_memory_redis({.url = url(), .log = log_})) << "before any gateway could notice";
  EXPECT_TRUE(eventually([&] { return !store->healthy(); }));
  EXPECT_FALSE(claims(*store));
  EXPECT_TRUE(eventually([&] {
    const Status healthy = store->healthy();
    return !healthy && (healthy.fault().message.find("restart") != std::string::npos ||
                        healthy.fault().message.find("lost its memory") != std::string::npos);
  }));
}

TEST_F(RedisServer, TwoThatStartAtOnceAgree) {
  std::vector<std::future<std::unique_ptr<Store>>> opening;
  for (int i = 0; i < 4; ++i) opening.push_back(std::async(std::launch::async, [this] { return open(); }));
  std::set<std::array<std::uint8_t, 32>> secrets;
  for (auto& each : opening) secrets.insert(each.get()->secret());
  EXPECT_EQ(secrets.size(), 1u);
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

// Cluster.

class RedisClusterServer : public RedisServer {
 protected:
  RedisClusterServer() : RedisServer("ONCEKEY_TEST_REDIS_CLUSTER") {}
  void TearDown() override {}

  struct Node {
    std::string id;
    Host host;
    std::string primary; // id of its own; "-" for primaries
    std::string slots;   // "0-5461 ..."
  };
  std::vector<Node> nodes() {
    std::vector<Node> nodes;
    std::istringstream lines(console_->text({"CLUSTER", "NODES"}));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string id, address, flags, primary, skipped, slots;
      words >> id >> address >> flags >> primary >> skipped >> skipped >> skipped >> skipped;
      std::getline(words, slots);
      if (flags.find("fail") != std::string::npos) continue;
      nodes.push_back({id, *parse_endpoint(address.substr(0, address.find('@'))), primary, slots});
    }
    return nodes;
  }
  std::vector<Node> primaries() {
    std::vector<Node> found = nodes();
    std::erase_if(found, [](const Node& node) { return node.primary != "-" || node.slots.empty(); });
    return found;
  }
  std::vector<std::uint16_t> partition_slots_of(const Host& host) {
    const OwnedReply reply = console_->ask({"CLUSTER", "SLOTS"});
    const auto ranges = parse_slots(reply.look(), console_->host());
    const KeyNames names(prefix_, kClusterPartitions);
    std::vector<std::uint16_t> slots;
    for (std::uint32_t partition = 0; partition < kClusterPartitions; ++partition) {
      for (const SlotRange& range : *ranges) {
        const std::uint16_t slot = names.slot(partition);
        if (range.primary == host && range.first <= slot && slot <= range.last) slots.push_back(slot);
      }
    }
    return slots;
  }
  // As redis-cli does it: all keys go one by one, and then the slot itself. With a pause in the middle, when some keys
  // are here and some there.
  static void begin_to_move(std::uint16_t slot, const Node& from, const Node& to) {
    Console giving(from.host);
    const std::string number = std::to_string(slot);
    Console(to.host).ask({"CLUSTER", "SETSLOT", number, "IMPORTING", from.id});
    giving.ask({"CLUSTER", "SETSLOT", number, "MIGRATING", to.id});
    for (int i = 0; i < 1000; ++i) {
      const OwnedReply keys = giving.ask({"CLUSTER", "GETKEYSINSLOT", number, "1"});
      if (keys.look().size() == 0) break;
      giving.ask({"MIGRATE", to.host.name, std::to_string(to.host.port), keys.look()[0].text(), "0", "5000"});
      if (i == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  static void end_to_move(std::uint16_t slot, const Node& from, const Node& to, const std::vector<Node>& everybody) {
    const std::string number = std::to_string(slot);
    for (const Node* const first : {&to, &from}) {
      Console(first->host).ask({"CLUSTER", "SETSLOT", number, "NODE", to.id});
    }
    for (const Node& node : everybody) {
      if (node.primary == "-") Console(node.host).ask({"CLUSTER", "SETSLOT", number, "NODE", to.id});
    }
  }
  static void move_slot(std::uint16_t slot, const Node& from, const Node& to, const std::vector<Node>& everybody) {
    begin_to_move(slot, from, to);
    end_to_move(slot, from, to, everybody);
  }
};

TEST_F(RedisClusterServer, ANodeOfAClusterIsNotUsedAsASingleServer) {
  EXPECT_THAT(refusal(fmt::format("redis://{}/0", to_string(console_->host()))), HasSubstr("redis+cluster://"));
}

TEST_F(RedisClusterServer, RecordsAreSpreadOverAllPrimariesAndListed) {
  const auto store = open();
  std::set<RecordId> made;
  for (int i = 0; i < 60; ++i) {
    const RecordId id = random_id();
    ASSERT_TRUE(claim(*store, id));
    made.insert(id);
  }
  const auto listed = wait_for_answer<std::vector<Listed>>([&](auto done) { store->list({}, std::move(done)); });
  ASSERT_TRUE(listed) << listed.fault().message;
  std::set<RecordId> seen;
  for (const Listed& line : *listed) seen.insert(line.id);
  EXPECT_EQ(seen, made);
}

TEST_F(RedisClusterServer, ARecordOnItsWayIsAskedForWhereItIs) {
  const auto store = open();
  const std::vector<Node> all = primaries();
  const KeyNames names(prefix_, kClusterPartitions);
  const RecordId id = random_id();
  ASSERT_TRUE(claim(*store, id));
  const std::uint16_t slot = names.slot(names.partition_of(id));
  const bool at_first = std::ranges::count(partition_slots_of(all[0].host), slot) > 0;
  const Node& from = at_first                                                        ? all[0]
                     : std::ranges::count(partition_slots_of(all[1].host), slot) > 0 ? all[1]
                                                                                     : all[2];
  const Node& to = at_first ? all[1] : all[0];
  begin_to_move(slot, from, to);
  const Result<ClaimAnswer> found = claim(*store, id);
  ASSERT_TRUE(found) << found.fault().message;
  EXPECT_TRUE(std::holds_alternative<Found>(*found));
  end_to_move(slot, from, to, all);
  EXPECT_TRUE(std::holds_alternative<Found>(*claim(*store, id)));
}

TEST_F(RedisClusterServer, SlotsMovedUnderLoadChangeNothing) {
  const auto store = open();
  Crowd crowd(*store, 16);
  const std::vector<Node> all = primaries();
  ASSERT_GE(all.size(), 2u);
  const std::vector<std::uint16_t> slots = partition_slots_of(all[0].host);
  ASSERT_GE(slots.size(), 40u);
  for (std::size_t i = 0; i < 40; ++i) move_slot(slots[i], all[0], all[1], all);
  for (std::size_t i = 0; i < 40; ++i) move_slot(slots[i], all[1], all[0], all);
  crowd.stop();
  crowd.check();
  EXPECT_GT(crowd.done(), 0u);
  EXPECT_EQ(crowd.refused() + crowd.unknown(), 0u) << "nothing was away, so nothing had to be refused";
  EXPECT_TRUE(store->healthy());
}

TEST_F(RedisClusterServer, ASwitchOfPrimariesUnderLoadLosesNothing) {
  const auto store = open();
  Crowd crowd(*store, 16);
  const Node primary = primaries()[0];
  std::optional<Node> replica;
  for (const Node& node : nodes()) {
    if (node.primary == primary.id) replica = node;
  }
  ASSERT_TRUE(replica);
  const auto is_primary = [&] { return Console(replica->host).ask({"ROLE"}).look()[0].text() == "master"; };
  int rounds = 0;
  EXPECT_TRUE(eventually(
      [&] {
        if (rounds++ % 300 == 0) Console(replica->host).ask({"CLUSTER", "FAILOVER"});
        return is_primary();
      },
      std::chrono::seconds(20)));
  EXPECT_TRUE(eventually([&] {
    for (int i = 0; i < 20; ++i) {
      if (!claims(*store)) return false;
    }
    return true;
  })) << "it recovers";
  crowd.stop();
  EXPECT_TRUE(eventually([&] { return store->healthy().ok(); })) << store->healthy().fault().message;
  crowd.check();
  EXPECT_GT(crowd.done(), 0u);
}

TEST_F(RedisClusterServer, WhenReplicasConfirmItCounts) {
  const auto store = open("&wait=1");
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(claims(*store));
  EXPECT_TRUE(store->healthy());
}

TEST_F(RedisClusterServer, OneFlushedPrimaryIsALossForTheWholeStore) {
  const auto store = open();
  ASSERT_TRUE(claims(*store));
  Console(primaries()[1].host).ask({"FLUSHALL"});
  EXPECT_TRUE(eventually([&] { return !store->healthy(); }));
  EXPECT_FALSE(claims(*store));
  const auto later = open();
  EXPECT_TRUE(eventually([&] { return !claims(*later); }));
  ASSERT_TRUE(accept_lost_memory_redis({.url = url(), .log = log_}));
  EXPECT_TRUE(eventually([&] { return claims(*store) && claims(*later); }));
}

} // namespace
} // namespace oncekey::redis
