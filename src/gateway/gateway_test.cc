// What cannot be provoked from outside: a store that fails, forgets or is overtaken at the worst moment. Everything
// else about the gateway is tested on the built binary (tests/integration, tests/scenarios).
#include "gateway/gateway.h"

#include "net/connect.h"

#include "store/open_store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

namespace oncekey {
namespace {

// Counts executions and answers 201 with the number.
class CountingApi final : public Handler {
 public:
  std::atomic<int> executions{0};
  Task<void> handle(Exchange& exchange) override {
    std::string body;
    co_await exchange.read_body(body, 1u << 20);
    const std::string answer = std::to_string(++executions);
    const Headers none;
    co_await exchange.send(201, {}, none, answer);
  }
};

// Keeps no count, unless it has a loop to count on: then it answers with a later turn, as a server elsewhere does.
class LostRates final : public RateKeeper {
 public:
  Loop* counts_on = nullptr;
  std::atomic<bool> allows{true};

  void take(const RateBucketId&, const Rate&, std::function<void(Result<Taken>)> done) override {
    if (counts_on == nullptr) return done(unavailable("no server counts"));
    counts_on->post([this, done = std::move(done)] { done(Taken{allows}); });
  }
  void give_back(const RateBucketId&, const Rate&) override {}
};

// A store whose calls fail, or that lets another caller in between, when a test says so.
class TroubledStore final : public Store {
 public:
  explicit TroubledStore(Store& sound) : sound_(sound) {}
  std::atomic<bool> claims_fail{false};
  std::atomic<bool> is_damaged{false}; // no record can be read
  std::atomic<bool> completes_fail{false};
  std::atomic<bool> seals{false};                        // keeps answers encrypted, as a gateway with keys will
  std::function<void(const Ownership&)> before_complete; // runs in place of nothing, before the owner's own complete

  void claim(ClaimRequest request, Done<ClaimAnswer> done) override {
    if (claims_fail) return done(unavailable("the store is down"));
    if (is_damaged) return done(corrupt("a stored record is damaged"));
    sound_.claim(std::move(request), std::move(done));
  }
  void by_fence(FenceCall call) override {
    if (call.verb == FenceVerb::complete) {
      if (completes_fail) return call.done(unavailable("the disk is full"));
      if (before_complete) before_complete(call.owner);
      if (seals) {
        call.response.headers = {};
        call.response.body.clear();
        call.response.sealed =
            std::make_shared<const Sealed>(Sealed{7, call.owner.fence, {}, std::string(kSealTagBytes, 's')});
      }
    }
    sound_.by_fence(std::move(call));
  }
  void find(const RecordId& id, Interest interest, Done<std::optional<Found>> done) override {
    sound_.find(id, interest, std::move(done));
  }
  JobStore& jobs() override { return sound_.jobs(); }
  void operate(const RecordId& id, OperatorAction action, StoredResponse response, Done<OperatorAnswer> done) override {
    sound_.operate(id, action, std::move(response), std::move(done));
  }
  void list(const ListRequest& request, Done<std::vector<Listed>> done) override {
    sound_.list(request, std::move(done));
  }
  void browse(const BrowseRequest& request, Done<BrowsePage> done) override { sound_.browse(request, std::move(done)); }
  void count_waiting(Done<WaitingKeys> done) override { sound_.count_waiting(std::move(done)); }
  Time now() const override { return sound_.now(); }
  const std::array<std::uint8_t, 32>& secret() const override { return sound_.secret(); }
  Durability durability() const override { return sound_.durability(); }
  Status healthy() const override { return sound_.healthy(); }
  StoreStats stats() const override { return sound_.stats(); }
  RateKeeper* rates() override { return &lost_rates; }
  LostRates lost_rates;

 private:
  Store& sound_;
};

class GatewayWithATroubledStore : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = open_store("memory:", StoreOptions{log_, [](const std::string&) {}});
    ASSERT_TRUE(opened.ok());
    sound_ = std::move(opened).value();
    store_ = std::make_unique<TroubledStore>(*sound_);
  }

  // Call after adjusting policy_.
  void start() {
    Route route;
    route.path = route.name = "/*";
    route.policy = policy_;
    config_.routes = {route};
    std::array<ShareLimit, kResources> plenty;
    plenty.fill({1u << 20, 1u << 20, 1u << 20, 1u << 20});
    const ServerOptions options{
        {kLong, kLong, kLong, kLong, 1}, 32u << 10, std::make_shared<Shares>(plenty), {}, {}, {}};
    auto api = Server::listen("127.0.0.1", 0, options, {{loop_, api_}}, log_);
    ASSERT_TRUE(api.ok());
    api_server_ = std::move(api).value();
    config_.upstream.host = config_.upstream.authority = "127.0.0.1";
    config_.upstream.port = port_of(*api_server_);
    shared_ = std::make_unique<GatewayShared>(config_, *store_, log_);
    pools_ = std::move(make_pools(config_, shared_->upstreams, loop_, shared_->upstream_open)).value();
    gateway_ = std::make_unique<Gateway>(*shared_, pools_, loop_);
    auto server = Server::listen("127.0.0.1", 0, options, {{loop_, *gateway_}}, log_);
    ASSERT_TRUE(server.ok());
    server_ = std::move(server).value();
    api_server_->start();
    server_->start();
    thread_ = std::thread([this] { loop_.run(); });
  }

  void TearDown() override {
    if (!thread_.joinable()) return;
    server_->drain();
    while (server_->connections() > 0) std::this_thread::yield();
    std::promise<void> closed;
    loop_.post([&] {
      for (const auto& pool : pools_) pool->close_idle();
      closed.set_value();
    });
    closed.get_future().wait();
    api_server_->drain();
    while (api_server_->connections() > 0) std::this_thread::yield();
    loop_.stop();
    thread_.join();
  }

  // The whole answer to one POST, as bytes.
  std::string post(std::string_view key, std::string_view body) {
    const std::string request = fmt::format(
        "POST /charges HTTP/1.1\r\nHost: x\r\nAuthorization: a\r\nIdempotency-Key: {}\r\n"
        "Connection: close\r\nContent-Length: {}\r\n\r\n{}",
        key, body.size(), body);
    Loop own;
    return own.run_to_end(exchange(own, request));
  }

  Task<std::string> exchange(Loop& own, std::string_view request) {
    const MonotonicTime due = std::chrono::steady_clock::now() + kLong;
    const Connected connected = co_await connect(own, "127.0.0.1", port_of(*server_), nullptr, due);
    const IoResult sent = co_await connected.transport->write(request);
    std::string answer;
    char piece[1024];
    for (IoResult got{sent.error}; !got.error;) {
      got = co_await connected.transport->read_some(piece);
      answer.append(piece, got.bytes);
    }
    co_return answer;
  }

  static std::uint16_t port_of(const Server& server) {
    const std::string address = server.address();
    return static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  }
  static bool is(const std::string& answer, int status) {
    return answer.starts_with(fmt::format("HTTP/1.1 {} ", status));
  }

  static constexpr Millis kLong{30'000};
  Log log_{LogLevel::error};
  Loop loop_;
  Policy policy_ = *policy_by_name("classic");
  Config config_;
  CountingApi api_;
  std::unique_ptr<Store> sound_;
  std::unique_ptr<TroubledStore> store_;
  std::unique_ptr<Server> api_server_;
  std::unique_ptr<GatewayShared> shared_;
  UpstreamPools pools_;
  std::unique_ptr<Gateway> gateway_;
  std::unique_ptr<Server> server_;
  std::thread thread_;
};

TEST_F(GatewayWithATroubledStore, ExecutesNothingWhileTheStoreIsDownAndRecovers) {
  start();
  store_->claims_fail = true;
  const std::string refused = post("k", "{}");
  EXPECT_TRUE(is(refused, 503)) << refused;
  EXPECT_NE(refused.find("Retry-After: "), std::string::npos);
  EXPECT_EQ(api_.executions, 0);
  store_->claims_fail = false;
  EXPECT_TRUE(is(post("k", "{}"), 201));
  EXPECT_EQ(api_.executions, 1);
}

TEST_F(GatewayWithATroubledStore, BypassesAndSaysSoWhereTheRouteAllowsIt) {
  policy_.on_store_error = OnStoreError::bypass;
  start();
  store_->claims_fail = true;
  const std::string answer = post("k", "{}");
  EXPECT_TRUE(is(answer, 201)) << answer;
  EXPECT_NE(answer.find("Oncekey-Bypassed: true"), std::string::npos);
  EXPECT_NE(shared_->metrics.expose().find("oncekey_requests_total{decision=\"bypass\",route=\"/*\"} 1"),
            std::string::npos);
}

TEST_F(GatewayWithATroubledStore, DoesNotBypassARecordThatCannotBeRead) {
  policy_.on_store_error = OnStoreError::bypass;
  start();
  EXPECT_TRUE(is(post("k", "{}"), 201));
  store_->is_damaged = true;
  const std::string refused = post("k", "{}");
  EXPECT_TRUE(is(refused, 503)) << refused;
  EXPECT_EQ(refused.find("Nothing was executed"), std::string::npos) << refused;
  EXPECT_EQ(api_.executions, 1);
}

TEST_F(GatewayWithATroubledStore, DoesNotShowAnAnswerThatCouldNotBeWritten) {
  start();
  store_->completes_fail = true;
  const std::string refused = post("k", "{}");
  EXPECT_TRUE(is(refused, 503)) << refused;
  EXPECT_NE(refused.find("record_not_written"), std::string::npos) << refused;
  store_->completes_fail = false;
  // The key stays claimed: a retry within the lease does not execute again.
  EXPECT_TRUE(is(post("k", "{}"), 409));
  EXPECT_EQ(api_.executions, 1);
}

TEST_F(GatewayWithATroubledStore, GivesTheNewOwnersAnswerWhenItsOwnLeaseWasTakenOver) {
  start();
  // While our call runs, an operator lets it run again and another gateway finishes it.
  store_->before_complete = [this](const Ownership& owner) {
    sound_->find(owner.id, Interest::none, [&](Result<std::optional<Found>> found) {
      ClaimRequest request;
      request.id = owner.id;
      request.fingerprint = (*found)->record->fingerprint;
      request.lease = Millis(60'000);
      request.retention = Millis(600'000);
      sound_->release(owner, [](const Result<FenceAnswer>&) {});
      sound_->claim(request, [&](Result<ClaimAnswer> claimed) {
        StoredResponse theirs;
        theirs.status = 200;
        theirs.body = "theirs";
        sound_->complete({owner.id, std::get<Claimed>(*claimed).fence}, theirs, [](const Result<FenceAnswer>&) {});
      });
    });
  };
  const std::string answer = post("k", "{}");
  EXPECT_TRUE(is(answer, 200)) << answer;
  EXPECT_NE(answer.find("\r\n\r\ntheirs"), std::string::npos) << answer;
  EXPECT_NE(answer.find("Idempotent-Replayed: true"), std::string::npos);
  EXPECT_EQ(api_.executions, 1);
}

TEST_F(GatewayWithATroubledStore, NeitherShowsNorExecutesWhatIsSealedWithAKeyItHasNot) {
  policy_.on_store_error = OnStoreError::bypass;
  start();
  store_->seals = true;
  EXPECT_TRUE(is(post("k", "{}"), 201));
  const std::string refused = post("k", "{}");
  EXPECT_TRUE(is(refused, 503)) << refused;
  EXPECT_EQ(api_.executions, 1);
}

TEST_F(GatewayWithATroubledStore, WaitsForTheCountOfAnAddressThatIsKeptElsewhere) {
  config_.address_rate = {1, 1};
  store_->lost_rates.counts_on = &loop_;
  start();
  EXPECT_TRUE(is(post("a", "{}"), 201));
  store_->lost_rates.allows = false;
  EXPECT_TRUE(is(post("b", "{}"), 429));
  EXPECT_EQ(api_.executions, 1);
}

TEST_F(GatewayWithATroubledStore, LetsRequestsPassWhenTheLimiterHasLostCount) {
  policy_.rates.rate = 0.001;
  start();
  for (const char* key : {"a", "b", "c"}) EXPECT_TRUE(is(post(key, "{}"), 201));
  EXPECT_EQ(api_.executions, 3);
  EXPECT_NE(shared_->metrics.expose().find("oncekey_limiter_faults_total 3"), std::string::npos);
}

} // namespace
} // namespace oncekey
