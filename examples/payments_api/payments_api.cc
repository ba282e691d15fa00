// payments_api: a sample API to put Oncekey in front of. It charges (in memory) and counts how often it did.
//
//   POST /charges      {"amount": 2000, "currency": "eur"}   201 with the charge; every call is a new charge
//   GET  /charges      all charges of this process
//   GET  /executions   {"executions": N}: how many charges were really made
//
// "delay_ms", in the body or the query, makes the call take that long: time to send the same request twice. Nothing
// here knows about idempotency keys; that is the point.
//
//   payments_api --port 9090                  port 0 picks a free one; the first line printed names it
//   payments_api --listen 127.0.0.1:9090      the same; it listens on loopback only
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/json.hpp>

#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <optional>
#include <semaphore>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace json = boost::json;
using tcp = asio::ip::tcp;
using Request = http::request<http::string_body>;
using Response = http::response<http::string_body>;

constexpr std::int64_t kLongestDelayMs = 10'000;
constexpr std::size_t kLargestBody = 1u << 20;
// One thread a connection is the simplest thing that works; beyond this many, connections wait to be accepted.
constexpr std::ptrdiff_t kMostConnections = 512;
// The list is for people; the count goes on after it is full.
constexpr std::size_t kMostListed = 1000;

// The whole state of the company.
class Ledger {
 public:
  json::object charge(std::int64_t amount, const std::string& currency) {
    const std::lock_guard lock(mutex_);
    ++executions_;
    std::string digits = std::to_string(executions_);
    digits.insert(0, digits.size() < 6 ? 6 - digits.size() : 0, '0');
    json::object made{{"id", "ch_" + digits}, {"amount", amount}, {"currency", currency}, {"execution", executions_}};
    if (charges_.size() < kMostListed) charges_.push_back(made);
    return made;
  }

  json::object list() const {
    const std::lock_guard lock(mutex_);
    return {{"count", executions_}, {"charges", charges_}};
  }

  json::object executions() const {
    const std::lock_guard lock(mutex_);
    return {{"executions", executions_}};
  }

 private:
  mutable std::mutex mutex_;
  std::int64_t executions_ = 0;
  json::array charges_;
};

Response reply(const Request& request, http::status status, const json::object& body) {
  Response response(status, request.version());
  response.set(http::field::content_type, "application/json");
  response.keep_alive(request.keep_alive());
  response.body() = json::serialize(body) + "\n";
  response.prepare_payload();
  return response;
}

Response refuse(const Request& request, http::status status, std::string_view why) {
  return reply(request, status, {{"error", why}});
}

// The value of delay_ms in a query; nothing when it is not there or not a number.
std::optional<std::int64_t> delay_in_query(std::string_view query) {
  constexpr std::string_view kName = "delay_ms=";
  while (!query.empty()) {
    const std::size_t end = query.find('&');
    const std::string_view pair = query.substr(0, end);
    if (pair.substr(0, kName.size()) == kName) {
      std::int64_t value = 0;
      const std::string_view digits = pair.substr(kName.size());
      const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      if (read.ec != std::errc{} || read.ptr != digits.data() + digits.size()) return std::nullopt;
      return value;
    }
    query = end == std::string_view::npos ? std::string_view{} : query.substr(end + 1);
  }
  return std::nullopt;
}

Response charge(const Request& request, std::string_view query, Ledger& ledger) {
  boost::system::error_code error;
  const json::value body = json::parse(request.body(), error);
  if (error || !body.is_object()) return refuse(request, http::status::bad_request, "the body must be a JSON object");
  const json::value* amount = body.as_object().if_contains("amount");
  const json::value* currency = body.as_object().if_contains("currency");
  if (amount == nullptr || !amount->is_int64() || amount->as_int64() <= 0)
    return refuse(request, http::status::bad_request, "amount must be a positive whole number, in cents");
  if (currency == nullptr || !currency->is_string() || currency->as_string().size() != 3)
    return refuse(request, http::status::bad_request, "currency must be three letters, such as eur");

  std::int64_t delay = delay_in_query(query).value_or(0);
  if (const json::value* given = body.as_object().if_contains("delay_ms")) {
    if (!given->is_int64()) return refuse(request, http::status::bad_request, "delay_ms must be a whole number");
    delay = given->as_int64();
  }
  if (delay < 0 || delay > kLongestDelayMs)
    return refuse(request, http::status::bad_request, "delay_ms must be from 0 to 10000");

  const json::object made = ledger.charge(amount->as_int64(), std::string(currency->as_string()));
  std::this_thread::sleep_for(std::chrono::milliseconds(delay));
  return reply(request, http::status::created, made);
}

Response answer(const Request& request, Ledger& ledger) {
  const std::string_view target(request.target().data(), request.target().size());
  const std::size_t question = target.find('?');
  const std::string_view path = target.substr(0, question);
  const std::string_view query = question == std::string_view::npos ? std::string_view{} : target.substr(question + 1);
  const bool get = request.method() == http::verb::get;
  if (path == "/charges" && request.method() == http::verb::post) return charge(request, query, ledger);
  if (path == "/charges" && get) return reply(request, http::status::ok, ledger.list());
  if (path == "/executions" && get) return reply(request, http::status::ok, ledger.executions());
  return refuse(request, http::status::not_found, "try POST /charges, GET /charges or GET /executions");
}

// Serves one connection until the client closes it or sends something that is not HTTP.
void serve(tcp::socket socket, Ledger& ledger) {
  beast::flat_buffer buffer;
  boost::system::error_code error;
  socket.set_option(tcp::no_delay(true), error);
  for (;;) {
    http::request_parser<http::string_body> parser;
    parser.body_limit(kLargestBody);
    http::read(socket, buffer, parser, error);
    if (error) break;
    const Request request = parser.release();
    const Response response = answer(request, ledger);
    http::write(socket, response, error);
    if (error || !response.keep_alive()) break;
  }
  socket.shutdown(tcp::socket::shutdown_send, error);
}

std::optional<std::uint16_t> port_from(const std::vector<std::string_view>& arguments) {
  if (arguments.empty()) return std::uint16_t{9090};
  if (arguments.size() != 2) return std::nullopt;
  constexpr std::string_view kHost = "127.0.0.1:";
  std::string_view text = arguments[1];
  if (arguments[0] == "--listen" && text.substr(0, kHost.size()) == kHost) {
    text.remove_prefix(kHost.size());
  } else if (arguments[0] != "--port") {
    return std::nullopt;
  }
  std::uint16_t port = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), port);
  if (read.ec != std::errc{} || read.ptr != text.data() + text.size()) return std::nullopt;
  return port;
}

} // namespace

int main(int argc, char** argv) {
  const auto port = port_from(std::vector<std::string_view>(argv + 1, argv + argc));
  if (!port) {
    std::cerr << "usage: payments_api [--port PORT | --listen 127.0.0.1:PORT]\n";
    return 2;
  }
  asio::io_context context;
  tcp::acceptor acceptor(context);
  const tcp::endpoint endpoint(asio::ip::address_v4::loopback(), *port);
  boost::system::error_code error;
  acceptor.open(endpoint.protocol(), error);
  acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    std::cerr << "payments_api: cannot listen on 127.0.0.1:" << *port << ": " << error.message() << "\n";
    return 1;
  }
  std::cout << "payments_api: listening on 127.0.0.1:" << acceptor.local_endpoint().port() << std::endl;

  Ledger ledger;
  std::counting_semaphore<kMostConnections> free_places(kMostConnections);
  for (;;) {
    free_places.acquire();
    tcp::socket socket = acceptor.accept(error);
    if (error) {
      free_places.release();
      // Out of descriptors, most likely: some connection has to end first.
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      continue;
    }
    std::thread([&ledger, &free_places, taken = std::move(socket)]() mutable {
      serve(std::move(taken), ledger);
      free_places.release();
    }).detach();
  }
}
