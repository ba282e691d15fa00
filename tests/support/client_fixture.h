// The client against a scripted server, on a clock that moves when it sleeps. Nothing here waits.
#pragma once

#include "client/world.h"

#include <oncekey/client.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace oncekey::client_tests {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

inline FetchedAnswer status(int code, std::vector<std::pair<std::string, std::string>> fields = {},
                            std::string body = "") {
  FetchedAnswer response;
  response.status = code;
  response.body = std::move(body);
  for (const auto& [name, value] : fields) response.headers.add(name, value);
  return response;
}
inline FetchFailure refused_connection() { return {FetchFailure::Kind::not_sent, "connection refused", false}; }
inline FetchFailure lost() { return {FetchFailure::Kind::unknown, "connection reset", false}; }

// What a server does, and what it saw. Survives the client, as a server does.
struct Server {
  std::deque<Fetched> script;
  Fetched otherwise = status(201);
  std::function<Fetched(ClientWorld::Moment)> by_time; // instead of the script
  std::vector<std::string> keys;
  std::vector<Millis> arrivals; // since the beginning
  std::vector<std::string> heads;
  Time wall{Millis(1'700'000'000'000)};
};

class ScriptedWorld final : public ClientWorld {
 public:
  ScriptedWorld(Server& server, std::uint32_t seed) : server_(server), random_(seed) {}

  Moment now() override { return now_; }
  Time wall_clock() override { return server_.wall + std::chrono::duration_cast<Millis>(now_ - Moment{}); }
  void sleep(Millis duration) override { now_ += duration; }
  double chance() override { return std::uniform_real_distribution<double>(0, 1)(random_); }
  Fetched exchange(const FetchRequest& request, Moment due) override {
    EXPECT_GT(due, now_);
    server_.keys.emplace_back(request.headers.get("Idempotency-Key").value_or("none"));
    server_.arrivals.push_back(std::chrono::duration_cast<Millis>(now_ - Moment{}));
    server_.heads.push_back(request.headers.lines());
    if (server_.by_time) return server_.by_time(now_);
    if (server_.script.empty()) return server_.otherwise;
    Fetched next = std::move(server_.script.front());
    server_.script.pop_front();
    return next;
  }

 private:
  Server& server_;
  std::mt19937 random_;
  Moment now_{};
};

inline std::unique_ptr<Client> client_of(Server& server, ClientOptions options = {}, std::uint32_t seed = 1) {
  auto client = ClientInTests::open(std::move(options), std::make_unique<ScriptedWorld>(server, seed));
  EXPECT_TRUE(client.ok()) << (client.ok() ? "" : client.fault().message);
  return *std::move(client);
}

inline ClientRequest charge(std::string body = "amount=1") {
  ClientRequest request;
  request.url = "http://api.test/v1/charges";
  request.body = std::move(body);
  return request;
}

// Of one run. With an answer that is final everywhere.
inline ClientAnswer sent(Client& client, const ClientRequest& request = charge()) {
  auto answer = client.send(request);
  EXPECT_TRUE(answer.ok()) << (answer.ok() ? "" : answer.fault().message);
  return *std::move(answer);
}

} // namespace oncekey::client_tests
