#include "cli/admin_client.h"

#include <fmt/format.h>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include <chrono>

namespace oncekey {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

// Listing a large store reads all of it.
constexpr std::chrono::seconds kPatience{30};
// A record's body is at most max_stored_body, and base64 in JSON makes it a third longer.
constexpr std::uint64_t kLargestAnswer = 256u << 20;

struct Exchange {
  asio::ip::tcp::endpoint endpoint;
  http::request<http::string_body> request;
  http::response_parser<http::string_body> parser;
  beast::error_code error;
};

asio::awaitable<void> run(Exchange& exchange) {
  beast::tcp_stream stream(co_await asio::this_coro::executor);
  beast::flat_buffer buffer;
  auto token = asio::redirect_error(asio::use_awaitable, exchange.error);
  stream.expires_after(kPatience);
  co_await stream.async_connect(exchange.endpoint, token);
  if (exchange.error) co_return;
  co_await http::async_write(stream, exchange.request, token);
  if (exchange.error) co_return;
  co_await http::async_read(stream, buffer, exchange.parser, token);
}

} // namespace

Result<AdminAnswer> AdminClient::exchange(std::string_view method, std::string_view target,
                                          std::string_view json) const {
  const bool v6 = address_.host.find(':') != std::string::npos;
  const std::string authority = fmt::format("{}{}{}:{}", v6 ? "[" : "", address_.host, v6 ? "]" : "", address_.port);
  beast::error_code bad_address;
  Exchange exchange;
  exchange.endpoint = {asio::ip::make_address(address_.host, bad_address), address_.port};
  if (bad_address) return invalid(fmt::format("{} is not an IP address", address_.host));
  exchange.request = {http::string_to_verb({method.data(), method.size()}), {target.data(), target.size()}, 11};
  exchange.request.set(http::field::host, authority);
  exchange.request.set(http::field::user_agent, "oncekey-keys");
  exchange.request.set(http::field::connection, "close");
  if (!token_.empty()) exchange.request.set(http::field::authorization, "Bearer " + token_);
  if (method == "POST") exchange.request.set(http::field::content_type, "application/json");
  exchange.request.body() = json;
  exchange.request.prepare_payload();
  exchange.parser.body_limit(kLargestAnswer);

  asio::io_context context;
  asio::co_spawn(context, run(exchange), asio::detached);
  context.run();
  if (exchange.error)
    return unavailable(
        fmt::format("cannot reach the gateway's admin listener at {}: {}", authority,
                    exchange.error == beast::error::timeout ? "no answer in time" : exchange.error.message()));
  return AdminAnswer{static_cast<int>(exchange.parser.get().result_int()), std::move(exchange.parser.get().body())};
}

} // namespace oncekey
