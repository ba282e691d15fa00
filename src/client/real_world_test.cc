// The client over real sockets: connections are used again, by many threads, and never when there is doubt.
#include <oncekey/client.h>

#include "support/http_stand_in.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace oncekey {
namespace {

// Answers every request with its own body, on as many connections as come.
class EchoServer {
 public:
  enum class Manner { keeps_open, leaves_silently };

  explicit EchoServer(Manner manner) : manner_(manner), thread_([this] { accept(); }) {}
  ~EchoServer() {
    port_.close_to_clients();
    thread_.join();
    for (std::thread& connection : threads_) connection.join();
  }

  std::string url() const { return "http://" + port_.address() + "/x"; }
  int connections() const { return connections_; }

 private:
  void accept() {
    while (auto connection = port_.accept()) {
      ++connections_;
      threads_.emplace_back([this, peer = std::move(*connection)]() mutable { serve(peer); });
    }
  }

  void serve(testing_support::ServedConnection& connection) {
    bool open = true;
    while (open) {
      const auto request = connection.next_request();
      open = request && connection.respond(201, request->body) && manner_ == Manner::keeps_open;
    }
  }

  const Manner manner_;
  std::atomic<int> connections_{0};
  testing_support::ListeningPort port_;
  std::vector<std::thread> threads_;
  std::thread thread_;
};

ClientRequest echo(const EchoServer& server, std::string body) {
  ClientRequest request;
  request.url = server.url();
  request.body = std::move(body);
  return request;
}

TEST(RealWorld, ManyThreadsShareAClientAndItsConnections) {
  EchoServer server(EchoServer::Manner::keeps_open);
  {
    auto client = Client::open({});
    ASSERT_TRUE(client.ok());
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 25; ++i) {
          const std::string body = std::to_string(t) + "/" + std::to_string(i);
          const auto answer = (*client)->send(echo(server, body));
          wrong += !answer.ok() || answer->attempts != 1 || answer->response->body != body ? 1 : 0;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_LE(server.connections(), 4);
  }
}

TEST(RealWorld, AConnectionThatTheServerHasLeftIsNotUsedAgain) {
  EchoServer server(EchoServer::Manner::leaves_silently);
  {
    auto client = Client::open({});
    ASSERT_TRUE(client.ok());
    for (int i = 0; i < 5; ++i) {
      const auto answer = (*client)->send(echo(server, "x"));
      ASSERT_TRUE(answer.ok());
      EXPECT_EQ(answer->ending, Ending::succeeded);
    }
    EXPECT_EQ(server.connections(), 5);
  }
}

TEST(RealWorld, AnAnswerLongerThanAllowedIsGivenUpAtOnce) {
  EchoServer server(EchoServer::Manner::keeps_open);
  ClientOptions options;
  options.response_bytes_max = 1000;
  {
    auto client = Client::open(options);
    ASSERT_TRUE(client.ok());
    EXPECT_EQ((*client)->send(echo(server, std::string(1000, 'x')))->ending, Ending::succeeded);
    const auto answer = (*client)->send(echo(server, std::string(1001, 'x')));
    ASSERT_TRUE(answer.ok());
    EXPECT_EQ(answer->ending, Ending::gave_up);
    EXPECT_EQ(answer->attempts, 1u);
    EXPECT_TRUE(answer->key_kept);
  }
}

TEST(RealWorld, CertificatesThatCannotBeReadAreKnownAtOnce) {
  ClientOptions options;
  options.ca_file = "/no/such/file";
  EXPECT_FALSE(Client::open(options).ok());
}

} // namespace
} // namespace oncekey
