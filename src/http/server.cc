#include "http/server.h"

#include "http/tls.h"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <fmt/format.h>

#include <utility>

namespace oncekey {
namespace {

// A backlog for bursts of reconnecting clients; the kernel caps it at its own limit.
constexpr int kBacklog = 1024;
// After a refusal the client may still be sending; reading a little of it keeps the kernel from answering with a reset
// that would destroy the refusal before the client has read it.
constexpr std::size_t kLingerBytesMax = 1u << 20;
constexpr std::chrono::milliseconds kLinger{2000};
constexpr std::chrono::milliseconds kAcceptPause{100};

std::string text_of(const asio::ip::tcp::endpoint& endpoint) {
  const auto address = endpoint.address();
  return address.is_v6() ? fmt::format("[{}]:{}", address.to_string(), endpoint.port())
                         : fmt::format("{}:{}", address.to_string(), endpoint.port());
}

} // namespace

// Everything one client connection owns, for as long as it is open.
struct Server::Connection : ConnectionHook {
  Connection(Socket socket, Timers& timers, std::string address)
      : transport(std::move(socket), timers), peer(std::move(address)) {}
  bool idle = true; // between two requests
  Transport transport;
  ReadBuffer buffer;
  std::string peer;
};

Server::Server(ServerOptions options, std::vector<Lane> lanes, Log& log)
    : options_(std::move(options)),
      lanes_(std::move(lanes)),
      log_(log),
      acceptor_(lanes_.front().context),
      open_(lanes_.size()) {}

Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::listen(const std::string& host, std::uint16_t port, ServerOptions options,
                                               std::vector<Lane> lanes, Log& log) {
  std::unique_ptr<Server> server(new Server(std::move(options), std::move(lanes), log));
  if (!server->options_.tls_cert.empty()) {
    auto tls = server_tls(server->options_.tls_cert, server->options_.tls_key);
    if (!tls) return std::move(tls).fault();
    server->tls_ = std::move(tls).value();
  }

  error_code ec;
  const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, ec);
  if (ec) return invalid(fmt::format("cannot listen on {}: give an IP address, such as 127.0.0.1 or 0.0.0.0", host));
  const asio::ip::tcp::endpoint endpoint(address, port);
  Acceptor& acceptor = server->acceptor_;
  acceptor.open(endpoint.protocol(), ec);
  if (!ec) acceptor.set_option(asio::socket_base::reuse_address(true), ec);
  if (!ec) acceptor.bind(endpoint, ec);
  if (!ec) acceptor.listen(kBacklog, ec);
  if (ec == asio::error::address_in_use) {
    return invalid(fmt::format(
        "cannot listen on {}: another process has this port; stop it or choose another with --listen or --admin",
        text_of(endpoint)));
  }
  if (ec) return invalid(fmt::format("cannot listen on {}: {}", text_of(endpoint), ec.message()));
  return server;
}

std::string Server::address() const {
  error_code ec;
  return text_of(acceptor_.local_endpoint(ec));
}

void Server::start() {
  asio::post(lanes_.front().context, [this] { spawn(accept_loop()); });
}

void Server::drain() {
  draining_.store(true);
  asio::post(lanes_.front().context, [this] {
    error_code ignored;
    acceptor_.close(ignored);
  });
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    asio::post(lanes_[i].context, [this, i] {
      for (Connection& connection : open_[i]) {
        if (connection.idle) connection.transport.deadline(std::chrono::steady_clock::now());
      }
    });
  }
}

Task<void> Server::accept_loop() {
  std::size_t next = 0;
  while (!draining_.load()) {
    const std::size_t lane = next;
    next = (next + 1) % lanes_.size();
    auto [error, socket] = co_await acceptor_.async_accept(lanes_[lane].context, use_task);
    if (error == asio::error::operation_aborted || !acceptor_.is_open()) co_return;
    if (error) {
      // Out of file descriptors, most likely. Waiting for a connection to end is all that can help.
      log_.warning("accept_failed", {{"reason", error.message()}});
      asio::steady_timer pause(lanes_.front().context, kAcceptPause);
      co_await pause.async_wait(use_task);
      continue;
    }
    asio::post(lanes_[lane].context,
               [this, lane, moved = std::move(socket)]() mutable { spawn(serve(lane, std::move(moved))); });
  }
}

Task<void> Server::serve(std::size_t lane, Socket socket) {
  error_code ec;
  const auto remote = socket.remote_endpoint(ec);
  if (ec) co_return;
  Connection connection(std::move(socket), lanes_[lane].timers, remote.address().to_string());
  open_[lane].push_back(connection);
  const std::uint32_t open = connections_.fetch_add(1) + 1;
  try {
    bool usable = true;
    if (tls_) {
      connection.transport.deadline_after(options_.timeouts.request_headers);
      const error_code error = co_await connection.transport.serve_tls(*tls_);
      usable = !error;
    }
    if (usable && open > options_.max_connections) {
      co_await refuse(connection, {503, "the gateway has as many connections as it takes; try again shortly"});
    } else if (usable) {
      co_await serve_requests(lanes_[lane].handler, connection);
    }
  } catch (const std::exception& problem) {
    // Out of memory, or a bug that only shows here. The connection is gone; the records are as the store has them.
    log_.error("connection_failed", {{"reason", problem.what()}});
  }
  connection.transport.close();
  connections_.fetch_sub(1);
}

Task<void> Server::serve_requests(Handler& handler, Connection& connection) {
  Transport& transport = connection.transport;
  ReadBuffer& buffer = connection.buffer;
  for (bool first = true;; first = false) {
    // A CR LF before a request is left over from sloppy clients and harmless (RFC 9112, 2.2).
    while (buffer.unread().starts_with("\r\n")) buffer.consume(2);
    std::optional<std::size_t> length;
    bool begun = !buffer.empty();
    connection.idle = !begun;
    transport.deadline_after(first || begun ? options_.timeouts.request_headers : options_.timeouts.idle);
    while (!(length = head_length(buffer.unread()))) {
      if (buffer.unread().size() > options_.max_header_bytes) {
        co_await refuse(connection, {431, "the request line and header fields are too long together"});
        co_return;
      }
      if (draining_.load() && !begun) co_return;
      const IoResult got = co_await transport.read_some(buffer.room(kReadBytes));
      if (got.error) {
        if (transport.expired() && begun) {
          co_await refuse(connection, {408, "the request head did not arrive in time"});
        }
        co_return;
      }
      buffer.received(got.bytes);
      while (!begun && buffer.unread().starts_with("\r\n")) buffer.consume(2);
      // From the first byte on, the whole head has to arrive within its own time, however slowly it drips.
      if (!begun && !buffer.empty()) {
        begun = true;
        connection.idle = false;
        if (!first) transport.deadline_after(options_.timeouts.request_headers);
      }
    }
    if (*length > options_.max_header_bytes) {
      co_await refuse(connection, {431, "the request line and header fields are too long together"});
      co_return;
    }
    RequestParser parser;
    RequestHead head;
    const ParseFault fault = parser.parse_head(buffer.unread().substr(0, *length), head);
    if (fault) {
      co_await refuse(connection, fault);
      co_return;
    }
    buffer.consume(*length);
    transport.no_deadline();
    Exchange exchange(transport, buffer, std::move(head), std::move(parser), connection.peer, options_.timeouts);
    if (draining_.load()) exchange.close_after();
    co_await handler.handle(exchange);
    if (exchange.client_gone()) co_return;
    if (!exchange.reusable() || draining_.load()) {
      co_await linger(connection);
      co_return;
    }
  }
}

Task<void> Server::refuse(Connection& connection, const ParseFault& fault) {
  const std::string body = problem_body(fault.status, fault.detail);
  const std::string head = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: application/problem+json\r\nCache-Control: no-store\r\nDate: {}\r\n"
      "{}Connection: close\r\nContent-Length: {}\r\n\r\n",
      fault.status, usual_reason(fault.status), http_date(), fault.status == 503 ? "Retry-After: 1\r\n" : "",
      body.size());
  connection.transport.deadline_after(options_.timeouts.write);
  const IoResult result = co_await connection.transport.write(head, body);
  if (!result.error) co_await linger(connection);
}

Task<void> Server::linger(Connection& connection) {
  Transport& transport = connection.transport;
  co_await transport.shutdown_send();
  transport.deadline_after(kLinger);
  for (std::size_t dropped = 0; dropped < kLingerBytesMax;) {
    connection.buffer.consume(connection.buffer.unread().size());
    const IoResult got = co_await transport.read_some(connection.buffer.room(kReadBytes));
    if (got.error) co_return;
    dropped += got.bytes;
    connection.buffer.received(got.bytes);
  }
}

} // namespace oncekey
