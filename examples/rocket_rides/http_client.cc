#include "http.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_future.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

#include <utility>

namespace rides {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

// Beast's timeouts work on asynchronous calls only: each is started, and the context run until it has ended.
template <class Future>
auto finish(asio::io_context& context, Future future) {
  context.restart();
  context.run();
  return future.get();
}

beast::string_view view(std::string_view text) { return {text.data(), text.size()}; }

} // namespace

HttpClient::HttpClient(std::string_view url, std::chrono::milliseconds timeout) : timeout_(timeout) {
  constexpr std::string_view kScheme = "http://";
  if (url.substr(0, kScheme.size()) != kScheme) throw std::runtime_error("not an http:// URL: " + std::string(url));
  url.remove_prefix(kScheme.size());
  const std::size_t colon = url.find(':');
  host_ = std::string(url.substr(0, colon));
  port_ = colon == std::string_view::npos ? "80" : std::string(url.substr(colon + 1));
}

HttpReply HttpClient::get(std::string_view path) const { return exchange("GET", path, {}, {}); }

HttpReply HttpClient::post(std::string_view path, const oncekey::Headers& headers, std::string_view body) const {
  return exchange("POST", path, headers, body);
}

HttpReply HttpClient::exchange(std::string_view method, std::string_view path, const oncekey::Headers& headers,
                               std::string_view body) const try {
  asio::io_context context(1);
  beast::tcp_stream stream(context);
  stream.expires_after(timeout_);
  const auto endpoints = asio::ip::tcp::resolver(context).resolve(host_, port_);
  finish(context, stream.async_connect(endpoints, asio::use_future));

  http::request<http::string_body> request;
  request.version(11);
  request.method_string(view(method));
  request.target(view(path));
  request.set(http::field::host, host_ + ":" + port_);
  for (std::size_t i = 0; i < headers.size(); ++i) request.insert(view(headers[i].name), view(headers[i].value));
  request.keep_alive(false);
  request.body() = std::string(body);
  request.prepare_payload();
  finish(context, http::async_write(stream, request, asio::use_future));

  beast::flat_buffer buffer;
  http::response<http::string_body> response;
  finish(context, http::async_read(stream, buffer, response, asio::use_future));

  HttpReply reply;
  reply.status = static_cast<int>(response.result_int());
  reply.reason = std::string(response.reason());
  for (const auto& field : response) {
    const auto name = field.name_string();
    reply.headers.add({name.data(), name.size()}, {field.value().data(), field.value().size()});
  }
  reply.body = std::move(response.body());
  return reply;
} catch (const boost::system::system_error& error) {
  throw NoReply(host_ + ":" + port_ + ": " + error.code().message());
}

} // namespace rides
