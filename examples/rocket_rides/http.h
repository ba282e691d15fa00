// A small blocking HTTP server and client, a thread for each connection: enough for an example, and nothing of it is
// needed to use Oncekey, which knows no sockets.
#pragma once

#include <oncekey/headers.h>
#include <oncekey/runner.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace rides {

struct HttpRequest {
  std::string method;
  std::string path; // without the query
  oncekey::Headers headers;
  std::string body;
};

// What the Runner answers with is what this server sends.
using HttpReply = oncekey::HttpAnswer;

HttpReply json_reply(int status, std::string body);
// {"error": {"code": …, "message": …}}
HttpReply error_reply(int status, std::string_view code, std::string_view message);

class HttpServer {
 public:
  // Nothing instead of a reply closes the connection without one: how the stand-ins lose their answers. Called from
  // many threads.
  using Handler = std::function<std::optional<HttpReply>(const HttpRequest&)>;

  // Listens on loopback; port 0 picks a free one. Throws std::runtime_error if the port is taken.
  HttpServer(std::uint16_t port, Handler handler);
  ~HttpServer();

  std::uint16_t port() const;
  // Serves until stop().
  void run();
  // From any thread: closes all connections and lets run() return when their handlers have.
  void stop();

 private:
  struct Listener;
  void serve(std::uint64_t number, int connection);

  Handler handler_;
  std::unique_ptr<Listener> listener_;
  std::mutex mutex_;
  std::condition_variable one_ended_;
  std::map<std::uint64_t, int> connections_; // open ones: number and descriptor
  std::vector<std::uint64_t> ended_;         // whose threads can be joined
  bool stopping_ = false;
};

// No whole answer came: refused, lost or late. Whether the request was executed is not known.
class NoReply : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class HttpClient {
 public:
  // http://host:port. Every request has a connection of its own and at most `timeout` from start to end.
  HttpClient(std::string_view url, std::chrono::milliseconds timeout);

  // Throw NoReply.
  HttpReply get(std::string_view path) const;
  HttpReply post(std::string_view path, const oncekey::Headers& headers, std::string_view body) const;

 private:
  HttpReply exchange(std::string_view method, std::string_view path, const oncekey::Headers& headers,
                     std::string_view body) const;

  std::string host_;
  std::string port_;
  std::chrono::milliseconds timeout_;
};

} // namespace rides
