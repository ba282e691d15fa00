// The client over real sockets: connections are used again, by many threads, and never when there is doubt.
#include <oncekey/client.h>

#include <gtest/gtest.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include <atomic>
#include <thread>
#include <vector>

namespace oncekey {
namespace {

namespace net = boost::asio;
namespace beast_http = boost::beast::http;

// Answers every request with its own body, on as many connections as come.
class EchoServer {
 public:
  enum class Manner { keeps_open, leaves_silently };

  explicit EchoServer(Manner manner)
      : manner_(manner), acceptor_(context_, {net::ip::address_v4::loopback(), 0}), thread_([this] { accept(); }) {}
  ~EchoServer() {
    stopping_ = true;
    net::io_context context;
    net::ip::tcp::socket last(context);
    boost::system::error_code ignored;
    last.connect(acceptor_.local_endpoint(), ignored); // wakes the accepting thread
    thread_.join();
    for (std::thread& connection : threads_) connection.join();
  }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port()) + "/x"; }
  int connections() const { return connections_; }

 private:
  void accept() {
    for (;;) {
      net::ip::tcp::socket socket = acceptor_.accept();
      if (stopping_) return;
      ++connections_;
      threads_.emplace_back([this, peer = std::move(socket)]() mutable { serve(peer); });
    }
  }

  void serve(net::ip::tcp::socket& socket) {
    boost::beast::flat_buffer buffer;
    boost::system::error_code error;
    do {
      beast_http::request<beast_http::string_body> request;
      beast_http::read(socket, buffer, request, error);
      if (error) return;
      beast_http::response<beast_http::string_body> response(beast_http::status::created, 11);
      response.body() = request.body();
      response.prepare_payload();
      beast_http::write(socket, response, error);
    } while (!error && manner_ == Manner::keeps_open);
  }

  const Manner manner_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> connections_{0};
  net::io_context context_;
  net::ip::tcp::acceptor acceptor_;
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
