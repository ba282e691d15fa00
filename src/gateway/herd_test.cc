// A herd of clients over several event loops: where the gateway's threads meet, for the thread sanitizer to look at.
// Who gets which answer is asked of the built binary as well (tests/integration/herd_test.py).
#include "gateway/gateway.h"
#include "store/open_store.h"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

namespace oncekey {
namespace {

constexpr std::size_t kLoops = 3;
constexpr int kClients = 12;
constexpr int kRounds = 8;
constexpr int kKeysPerRound = 3;

// Answers 201 with the number of the execution.
class NumberingApi final : public Handler {
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

// An event loop and what runs on it.
struct HerdLoop {
  Loop loop;
  UpstreamPools pools;
  std::unique_ptr<Gateway> gateway;
  std::thread thread;

  void start() {
    thread = std::thread([this] { loop.run(); });
  }
  void stop() {
    loop.stop();
    thread.join();
  }
};

std::uint16_t port_in(const std::string& address) {
  return static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
}

// The whole answer, as bytes.
std::string ask(std::uint16_t port, std::string_view key) {
  const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return "not connected";
  const std::string request = fmt::format(
      "POST /orders HTTP/1.1\r\nHost: x\r\nAuthorization: a\r\nIdempotency-Key: {}\r\n"
      "Connection: close\r\nContent-Length: 2\r\n\r\n{{}}",
      key);
  std::string answer;
  if (::send(client, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size())) {
    char piece[4096];
    for (ssize_t got = 0; (got = ::recv(client, piece, sizeof piece, 0)) > 0;)
      answer.append(piece, static_cast<std::size_t>(got));
  }
  ::close(client);
  return answer;
}

class HerdOverSeveralLoops : public testing::TestWithParam<const char*> {
 protected:
  ~HerdOverSeveralLoops() override { std::filesystem::remove_all(folder_); }

  std::string store_url() const {
    return std::string(GetParam()) == "journal" ? "journal:" + folder_ + "/store" : "memory:";
  }

  static std::string made_folder() {
    std::string path = testing::TempDir() + "herd-XXXXXX";
    EXPECT_NE(::mkdtemp(path.data()), nullptr);
    return path;
  }

  const std::string folder_ = made_folder();
};

TEST_P(HerdOverSeveralLoops, ExecutesEachKeyOnceAndGivesAllTheSameAnswer) {
  Log log{LogLevel::error};
  auto store = open_store(store_url(), StoreOptions{log, [](const std::string& reason) { FAIL() << reason; }});
  ASSERT_TRUE(store.ok()) << store.fault().message;

  constexpr Millis long_time{60'000};
  std::array<ShareLimit, kResources> plenty;
  plenty.fill({1u << 20, 1u << 20, 1u << 20, 1u << 20});
  const ServerOptions options{
      {long_time, long_time, long_time, long_time, 1}, 32u << 10, std::make_shared<Shares>(plenty), {}, {}, {}};
  NumberingApi api;
  HerdLoop api_loop;
  auto api_server = Server::listen("127.0.0.1", 0, options, {{api_loop.loop, api}}, log);
  ASSERT_TRUE(api_server.ok());

  Config config;
  Route route;
  route.path = route.name = "/*";
  route.policy = *policy_by_name("classic");
  route.policy.wait = long_time;
  config.routes = {route};
  config.upstream.host = config.upstream.authority = "127.0.0.1";
  config.upstream.port = port_in((*api_server)->address());
  GatewayShared shared(config, **store, log);
  std::array<HerdLoop, kLoops> loops;
  std::vector<Lane> lanes;
  for (HerdLoop& loop : loops) {
    loop.pools = std::move(make_pools(config, shared.upstreams, loop.loop, shared.upstream_open)).value();
    loop.gateway = std::make_unique<Gateway>(shared, loop.pools, loop.loop);
    lanes.push_back({loop.loop, *loop.gateway});
  }
  auto server = Server::listen("127.0.0.1", 0, options, lanes, log);
  ASSERT_TRUE(server.ok());
  (*api_server)->start();
  (*server)->start();
  api_loop.start();
  for (HerdLoop& loop : loops) loop.start();

  const std::uint16_t port = port_in((*server)->address());
  std::mutex mutex;
  std::map<std::string, std::set<std::string>> bodies; // by key
  std::vector<std::thread> clients;
  for (int client = 0; client < kClients; ++client) {
    clients.emplace_back([&, client] {
      for (int round = 0; round < kRounds; ++round) {
        const std::string key = fmt::format("herd-{}-{}", round, client % kKeysPerRound);
        const std::string answer = ask(port, key);
        const std::lock_guard lock(mutex);
        EXPECT_TRUE(answer.starts_with("HTTP/1.1 201 ")) << answer;
        bodies[key].insert(answer.substr(answer.find("\r\n\r\n") + 4));
      }
    });
  }
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(shared.metrics.expose().empty()); // as another thread asks for them
  for (std::thread& client : clients) client.join();

  EXPECT_EQ(api.executions, kRounds * kKeysPerRound);
  EXPECT_EQ(bodies.size(), static_cast<std::size_t>(kRounds * kKeysPerRound));
  for (const auto& [key, different] : bodies) EXPECT_EQ(different.size(), 1u) << key;

  (*server)->drain();
  while ((*server)->connections() > 0) std::this_thread::yield();
  for (HerdLoop& loop : loops) {
    loop.loop.post([&loop] {
      for (const auto& pool : loop.pools) pool->close_idle();
    });
    loop.stop();
  }
  (*api_server)->drain();
  while ((*api_server)->connections() > 0) std::this_thread::yield();
  api_loop.stop();
}

INSTANTIATE_TEST_SUITE_P(Stores, HerdOverSeveralLoops, testing::Values("memory", "journal"),
                         [](const auto& instance) { return std::string(instance.param); });

} // namespace
} // namespace oncekey
