// The Redis store under test: on a real server, whose URL is in ONCEKEY_TEST_REDIS or ONCEKEY_TEST_REDIS_CLUSTER
// (tests/support/with_servers.py starts them), with a console of the test's own and a crowd of callers.
#pragma once

#include "base/crypto.h"
#include "redis/connection.h"
#include "store/redis/redis_store.h"
#include "store/redis/slots.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

namespace oncekey::redis::store_tests {

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

inline RecordId random_id() {
  RecordId id;
  fill_random(id.bytes);
  return id;
}

inline ClaimRequest claim_of(const RecordId& id) {
  ClaimRequest request;
  request.id = id;
  request.lease = std::chrono::seconds(60);
  request.retention = std::chrono::hours(1);
  return request;
}

inline Result<ClaimAnswer> claim(Store& store, const RecordId& id) {
  return wait_for_answer<ClaimAnswer>([&](auto done) { store.claim(claim_of(id), std::move(done)); });
}
inline Result<std::optional<Found>> find(Store& store, const RecordId& id, Interest interest = Interest::none) {
  return wait_for_answer<std::optional<Found>>([&](auto done) { store.find(id, interest, std::move(done)); });
}
inline std::uint64_t fence_of(Store& store, const RecordId& id) { return (*find(store, id))->record->fence; }
inline Result<FenceAnswer> complete(Store& store, const Ownership& owner, const std::string& body = "x") {
  StoredResponse response;
  response.status = 200;
  response.body = body;
  return wait_for_answer<FenceAnswer>([&](auto done) { store.complete(owner, response, std::move(done)); });
}
inline Result<FenceAnswer> complete(Store& store, const RecordId& id, std::uint64_t fence,
                                    const std::string& body = "x") {
  return complete(store, {id, fence}, body);
}
inline OperatorAnswer operate(Store& store, const RecordId& id, OperatorAction action) {
  return *wait_for_answer<OperatorAnswer>([&](auto done) { store.operate(id, action, {}, std::move(done)); });
}
inline bool claims(Store& store) {
  const Result<ClaimAnswer> answer = claim(store, random_id());
  return answer && std::holds_alternative<Claimed>(*answer);
}

inline std::string refusal_to_claim(Store& store) {
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

} // namespace oncekey::redis::store_tests
