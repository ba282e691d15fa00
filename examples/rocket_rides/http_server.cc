#include "http.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <boost/json.hpp>

#include <sys/socket.h>
#include <map>
#include <thread>
#include <utility>
#include <vector>

namespace rides {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;

constexpr std::size_t kLargestBody = 1u << 20;
// Beyond this many, connections wait to be accepted.
constexpr std::size_t kMostConnections = 512;

std::string_view text(boost::beast::string_view view) { return {view.data(), view.size()}; }

HttpRequest request_from(http::request<http::string_body>&& parsed) {
  const std::string_view target = text(parsed.target());
  HttpRequest request;
  request.method = std::string(text(parsed.method_string()));
  request.path = std::string(target.substr(0, target.find('?')));
  for (const auto& field : parsed) request.headers.add(text(field.name_string()), text(field.value()));
  request.body = std::move(parsed.body());
  return request;
}

http::response<http::string_body> response_from(HttpReply&& reply, bool keep_alive) {
  http::response<http::string_body> response;
  response.version(11);
  response.result(static_cast<unsigned>(reply.status));
  if (!reply.reason.empty()) response.reason(reply.reason);
  for (std::size_t i = 0; i < reply.headers.size(); ++i) {
    const oncekey::Field field = reply.headers[i];
    response.insert(boost::beast::string_view(field.name.data(), field.name.size()),
                    boost::beast::string_view(field.value.data(), field.value.size()));
  }
  response.keep_alive(keep_alive);
  response.body() = std::move(reply.body);
  response.prepare_payload();
  return response;
}

} // namespace

HttpReply json_reply(int status, std::string body) {
  HttpReply reply;
  reply.status = status;
  reply.headers.add("Content-Type", "application/json");
  reply.body = std::move(body);
  return reply;
}

HttpReply error_reply(int status, std::string_view code, std::string_view message) {
  const boost::json::object error{{"code", code}, {"message", message}};
  return json_reply(status, boost::json::serialize(boost::json::object{{"error", error}}));
}

struct HttpServer::Listener {
  asio::io_context context{1};
  tcp::acceptor acceptor{context};
};

HttpServer::HttpServer(std::uint16_t port, Handler handler)
    : handler_(std::move(handler)), listener_(std::make_unique<Listener>()) {
  const tcp::endpoint endpoint(asio::ip::address_v4::loopback(), port);
  tcp::acceptor& acceptor = listener_->acceptor;
  boost::system::error_code error;
  acceptor.open(endpoint.protocol());
  acceptor.set_option(tcp::acceptor::reuse_address(true));
  acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) throw std::runtime_error("cannot listen on 127.0.0.1:" + std::to_string(port) + ": " + error.message());
}

HttpServer::~HttpServer() = default;

std::uint16_t HttpServer::port() const { return listener_->acceptor.local_endpoint().port(); }

void HttpServer::run() {
  std::map<std::uint64_t, std::jthread> threads; // all of them are joined at the end
  for (std::uint64_t number = 0;; ++number) {
    boost::system::error_code error;
    tcp::socket socket = listener_->acceptor.accept(error);
    std::vector<std::uint64_t> ended;
    {
      std::unique_lock lock(mutex_);
      one_ended_.wait(lock, [&] { return stopping_ || connections_.size() < kMostConnections; });
      if (stopping_) return;
      // Out of descriptors, most likely: some connection has to end first.
      if (error) one_ended_.wait_for(lock, std::chrono::milliseconds(50));
      ended.swap(ended_);
      if (!error) connections_[number] = socket.native_handle();
    }
    for (const std::uint64_t one : ended) threads.erase(one);
    if (!error) threads[number] = std::jthread([this, number, taken = socket.release()] { serve(number, taken); });
  }
}

void HttpServer::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  // The one way to end a blocking accept or read from another thread.
  ::shutdown(listener_->acceptor.native_handle(), SHUT_RDWR);
  for (const auto& [number, connection] : connections_) ::shutdown(connection, SHUT_RD);
  one_ended_.notify_all();
}

// One connection, until either side ends it or the client sends something that is not HTTP.
void HttpServer::serve(std::uint64_t number, int connection) {
  asio::io_context context(1);
  tcp::socket socket(context, tcp::v4(), connection);
  boost::beast::flat_buffer buffer;
  boost::system::error_code error;
  socket.set_option(tcp::no_delay(true), error);
  for (;;) {
    http::request_parser<http::string_body> parser;
    parser.body_limit(kLargestBody);
    http::read(socket, buffer, parser, error);
    if (error) break;
    const bool keep_alive = parser.keep_alive();
    std::optional<HttpReply> reply = handler_(request_from(parser.release()));
    if (!reply) break;
    http::write(socket, response_from(*std::move(reply), keep_alive), error);
    if (error || !keep_alive) break;
  }
  // Closed under the lock, so that stop() never shuts down a descriptor that means another connection by then.
  const std::lock_guard lock(mutex_);
  socket.close(error);
  connections_.erase(number);
  ended_.push_back(number);
  one_ended_.notify_all();
}

} // namespace rides
