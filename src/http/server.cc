#include "http/server.h"

#include "base/reasons.h"

#include <stdexcept>

namespace oncekey {
namespace {

// After a refusal the client may still be sending; reading a little of it keeps the kernel from answering with a reset
// that would destroy the refusal before the client has read it.
constexpr std::size_t kLingerBytesMax = 1u << 20;
constexpr std::chrono::milliseconds kLinger{2000};
constexpr std::chrono::milliseconds kAcceptPause{100};
// A client that has connected just before a drain has its request on the way.
constexpr std::chrono::milliseconds kFirstRequest{1000};
// One line about it is enough for so long.
constexpr std::chrono::minutes kTellOfACrowdEvery{10};
// Fewer connections than this from one address are no crowd, whatever the limits are.
constexpr std::uint64_t kCrowdMin = 16;

std::string refusal_text(const ParseFault& fault, const Headers& more) {
  const std::string body = problem_body(fault.status, fault.detail);
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: application/problem+json\r\nCache-Control: no-store\r\nDate: {}\r\n"
      "{}{}Connection: close\r\nContent-Length: {}\r\n\r\n{}",
      fault.status, reason_of(fault.status), http_date(),
      fault.status == 503 || fault.status == 429 ? "Retry-After: 1\r\n" : "", more.lines(), body.size(), body);
}

// The first byte of a TLS record that holds a handshake; no request begins with it.
constexpr char kTlsHandshake = '\x16';

} // namespace

// A connection that was accepted and counted.
struct Server::Accepted {
  Descriptor socket;
  std::string peer{};
  Parties::Ref address{}; // empty for a trusted proxy
  std::optional<Holding> place{};
  bool adopted = false; // another process has served requests on it
};

// Everything one client connection owns, for as long as it is open.
struct Server::Connection : ConnectionHook {
  Connection(Accepted accepted, Loop& loop)
      : counted(std::move(accepted)), transport(loop, std::move(counted.socket)) {}
  bool idle = true;           // between two requests
  bool shaking_hands = false; // of TLS: the first request comes after that
  bool at_work = false;       // on a request whose head is whole
  bool gives_way = false;     // its place is another one's by now
  Accepted counted;           // before the transport: it is given back after the socket is closed
  Transport transport;
  ReadBuffer buffer;
};

Server::Server(ServerOptions options, std::vector<Lane> lanes, Log& log)
    : options_(std::move(options)),
      lanes_(std::move(lanes)),
      log_(log),
      listener_(lanes_.front().loop),
      open_(lanes_.size()) {}

Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::listen(const std::string& host, std::uint16_t port, ServerOptions options,
                                               std::vector<Lane> lanes, Log& log, Descriptor inherited) {
  std::unique_ptr<Server> server(new Server(std::move(options), std::move(lanes), log));
  Result<TlsContext> tls = server->load_tls(server->options_.tls_cert, server->options_.tls_key);
  if (!tls) return std::move(tls).fault();
  server->tls_ = *std::move(tls);

  const bool adopts = inherited.open();
  const Status listening =
      adopts ? server->listener_.adopt(std::move(inherited)) : server->listener_.listen(host, port);
  if (!listening && adopts)
    return invalid(fmt::format("the inherited socket for {}:{}: {}", host, port, listening.fault().message));
  if (!listening) {
    const bool taken = listening.fault().kind == FaultKind::conflict;
    const std::string shown = host.find(':') == std::string::npos ? host : fmt::format("[{}]", host);
    return invalid(fmt::format("cannot listen on {}:{}: {}{}", shown, port, listening.fault().message,
                               taken ? "; stop it or choose another with --listen or --admin" : ""));
  }
  server->address_ = server->listener_.address();
  return server;
}

Result<TlsContext> Server::load_tls(const std::string& cert_file, const std::string& key_file) const {
  if (options_.tls_cert.empty()) return TlsContext();
  return server_tls(cert_file, key_file, options_.setting_prefix, options_.client_ca);
}

void Server::use_tls(TlsContext context) {
  const std::lock_guard lock(tls_mutex_);
  tls_.swap(context);
}

TlsContext Server::tls() const {
  if (options_.tls_cert.empty()) return nullptr;
  const std::lock_guard lock(tls_mutex_);
  return tls_;
}

void Server::start() {
  lanes_.front().loop.post([this] {
    spawn(accept_loop(), [this](const std::exception& problem) {
      log_.error("accept_ended", {{"reason", problem.what()}, {"next", "no connection is accepted until a restart"}});
    });
  });
}

void Server::drain(IdleConnections idle) {
  keeping_.store(idle == IdleConnections::keep && options_.tls_cert.empty());
  if (!keeping_.load()) last_answers_.store(true);
  draining_.store(true);
  connections_.fetch_add(1); // until the backlog has been looked at
  lanes_.front().loop.post([this] {
    // Closing resets the connections that wait in the backlog, unless another process takes them.
    for (int taken = 0; taken < Listener::kBacklog && !keeping_.load(); ++taken) {
      Listener::Accepted waiting = listener_.accept_waiting();
      if (!waiting.socket.open()) break;
      hand_out({std::move(waiting.socket), waiting.peer.ip()});
    }
    listener_.close();
    connections_.fetch_sub(1);
  });
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i].loop.post([this, i] {
      const MonotonicTime now = std::chrono::steady_clock::now();
      for (Connection& connection : open_[i]) {
        if (connection.idle) connection.transport.deadline(connection.shaking_hands ? now + kFirstRequest : now);
      }
    });
  }
}

std::vector<Descriptor> Server::take_kept() {
  const std::lock_guard lock(kept_mutex_);
  return std::move(kept_);
}

void Server::adopt(Descriptor connection) {
  lanes_.front().loop.post([this, moved = std::move(connection)]() mutable {
    SocketAddress peer;
    // A client that has left meanwhile has no address any more.
    if (::getpeername(moved.number(), peer.get(), &peer.length) != 0) return;
    Accepted accepted{std::move(moved), peer.ip()};
    accepted.adopted = true;
    hand_out(std::move(accepted));
  });
}

Task<void> Server::accept_loop() {
  while (!draining_.load()) {
    Listener::Accepted taken = co_await listener_.accept();
    if (!listener_.open()) {
      if (draining_.load()) co_return;
      throw std::runtime_error("the listener cannot be watched: out of memory or of epoll watches");
    }
    if (taken.error) {
      // The machine is out of descriptors or memory: ours are counted and fit. Waiting is all that can help.
      log_.seldom(LogLevel::warning, "accept_failed", address_, {{"reason", taken.error.message()}});
      co_await sleep_for(lanes_.front().loop, kAcceptPause);
      continue;
    }
    hand_out({std::move(taken.socket), taken.peer.ip()});
  }
}

void Server::hand_out(Accepted accepted) {
  Grant grant = admit(accepted);
  if (grant != Grant::given && options_.silent_give_way &&
      end_a_silent_one(grant == Grant::all_used ? nullptr : accepted.address.get())) {
    grant = admit(accepted);
  }
  if (grant != Grant::given) return turn_away(std::move(accepted), grant);
  connections_.fetch_add(1);
  const std::size_t lane = next_lane_;
  next_lane_ = (next_lane_ + 1) % lanes_.size();
  lanes_[lane].loop.post([this, lane, moved = std::move(accepted)]() mutable { spawn(serve(lane, std::move(moved))); });
}

Grant Server::admit(Accepted& accepted) {
  const bool trusted = std::find(options_.trusted_proxies.begin(), options_.trusted_proxies.end(), accepted.peer) !=
                       options_.trusted_proxies.end();
  if (!trusted) accepted.address = options_.shares->addresses().join(party_of_address(accepted.peer));
  accepted.place.emplace(*options_.shares, Resource::connections, accepted.address.get());
  const Grant grant = accepted.place->try_add(1);
  if (grant == Grant::given && !trusted) warn_of_a_crowd(*accepted.address.get());
  return grant;
}

bool Server::end_a_silent_one(const Party* of) {
  for (Connection& connection : open_.front()) {
    if (connection.at_work || connection.gives_way) continue;
    if (of != nullptr && connection.counted.address.get() != of) continue;
    connection.gives_way = true;
    connection.counted.place.reset();
    connection.transport.deadline(std::chrono::steady_clock::now());
    return true;
  }
  return false;
}

void Server::turn_away(Accepted accepted, Grant why) {
  const bool all_used = why == Grant::all_used;
  const std::uint64_t so_far = (all_used ? refused_.all_used : refused_.address_over).fetch_add(1) + 1;
  log_.seldom(LogLevel::warning, "connections_refused", address_,
              {{"reason",
                all_used ? "all connections of this listener are in use" : "this address has as many as one may have"},
               {"peer", accepted.peer},
               {"refused_so_far", so_far}});
  if (!options_.tls_cert.empty()) return; // an answer would cost a handshake
  const std::string text = refusal_text(
      all_used ? ParseFault{503, "the gateway has as many connections as it takes; try again shortly"}
               : ParseFault{503, "this address has as many connections as one address may have; use fewer, or wait"},
      options_.answer_headers);
  // What the client has sent already is read, so that closing does not reset the connection under the answer.
  char dropped[4096];
  const int fd = accepted.socket.number();
  (void)::recv(fd, dropped, sizeof dropped, MSG_DONTWAIT);
  (void)::send(fd, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void Server::warn_of_a_crowd(const Party& address) {
  const std::uint64_t held = address.held(Resource::connections);
  const std::uint64_t cap = options_.shares->limit(Resource::connections).per_address;
  if (held < cap / 2 || held < kCrowdMin) return;
  log_.seldom(
      LogLevel::warning, "one_address", address_,
      {{"address", address.name()},
       {"connections", held},
       {"allowed", cap},
       {"next",
        "if this is a proxy of yours, list it in trusted_proxies, so that its clients are counted instead of it"}},
      kTellOfACrowdEvery);
}

Task<void> Server::serve(std::size_t lane, Accepted accepted) {
  try {
    const TlsContext tls = this->tls(); // lives as long as the connection
    Connection connection(std::move(accepted), lanes_[lane].loop);
    open_[lane].push_back(connection);
    bool usable = true;
    if (tls) {
      connection.transport.deadline_after(options_.timeouts.request_headers);
      connection.shaking_hands = true;
      const std::error_code error = co_await connection.transport.serve_tls(tls);
      connection.shaking_hands = false;
      usable = !error;
      if (is_plain_http(error)) co_await refuse_plain_http(connection);
    }
    if (usable) co_await serve_requests(lanes_[lane].handler, connection);
  } catch (const std::exception& problem) {
    // Out of memory, or a bug that only shows here. The connection is gone; the records are as the store has them.
    log_.error("connection_failed", {{"reason", problem.what()}});
  }
  connections_.fetch_sub(1);
}

Task<void> Server::serve_requests(Handler& handler, Connection& connection) {
  Transport& transport = connection.transport;
  ReadBuffer& buffer = connection.buffer;
  for (bool first = !connection.counted.adopted;; first = false) {
    // A CR LF before a request is left over from sloppy clients and harmless (RFC 9112, 2.2).
    while (buffer.unread().starts_with("\r\n")) buffer.consume(2);
    std::optional<std::size_t> length;
    Holding half_head(*options_.shares, Resource::buffered_bytes, connection.counted.address.get());
    bool begun = !buffer.empty();
    connection.idle = !begun;
    transport.deadline_after(draining_.load() && !begun ? kFirstRequest
                             : first || begun           ? options_.timeouts.request_headers
                                                        : options_.timeouts.idle);
    bool woken = false; // by a drain
    while (!(length = head_length(buffer.unread()))) {
      if (buffer.unread().size() > options_.max_header_bytes)
        co_return co_await refuse(connection, {431, "the request line and header fields are too long together"});
      if (begun && half_head.try_add(buffer.unread().size() - half_head.held()) != Grant::given) {
        co_await refuse(connection, {503, "too many unfinished requests are held in memory; try again shortly"});
        co_return;
      }
      IoResult got;
      while (!transport.read_now(buffer.room(kReadBytes), got)) {
        // A request that has arrived was read: the client waits for nothing here, unless its first one is on the way.
        if (draining_.load() && !begun && (!first || keeping_.load())) co_return end_idle(connection);
        co_await transport.readable();
      }
      if (got.error) {
        if (draining_.load() && !begun && transport.expired() && !std::exchange(woken, true)) {
          transport.deadline_after(kFirstRequest);
          continue;
        }
        if (transport.expired() && begun) {
          co_await refuse(connection, {408, "the request head did not arrive in time"});
        }
        co_return;
      }
      buffer.received(got.bytes);
      if (first && !begun && !transport.secure() && buffer.unread().front() == kTlsHandshake)
        co_return co_await refuse_tls(connection);
      while (!begun && buffer.unread().starts_with("\r\n")) buffer.consume(2);
      // From the first byte on, the whole head has to arrive within its own time, however slowly it drips.
      if (!begun && !buffer.empty()) {
        begun = true;
        connection.idle = false;
        if (!first && !connection.gives_way) transport.deadline_after(options_.timeouts.request_headers);
      }
    }
    if (*length > options_.max_header_bytes)
      co_return co_await refuse(connection, {431, "the request line and header fields are too long together"});
    RequestParser parser;
    RequestHead head;
    const ParseFault fault = parser.parse_head(buffer.unread().substr(0, *length), head);
    if (fault) co_return co_await refuse(connection, fault);
    buffer.consume(*length);
    half_head.let_go();
    transport.no_deadline();
    Exchange exchange(transport, buffer, std::move(head), std::move(parser), connection.counted.peer, options_.timeouts,
                      connection.counted.address.get());
    exchange.close_if(last_answers_);
    for (std::size_t i = 0; i < options_.answer_headers.size(); ++i)
      exchange.add_to_answer(options_.answer_headers[i].name, options_.answer_headers[i].value);
    connection.at_work = true;
    co_await handler.handle(exchange);
    connection.at_work = false;
    if (connection.gives_way || exchange.client_gone() || exchange.switched()) co_return;
    if (!exchange.reusable()) co_return co_await linger(connection);
  }
}

void Server::end_idle(Connection& connection) {
  if (!keeping_.load() || connection.transport.secure()) return;
  Descriptor kept = connection.transport.duplicate();
  const std::lock_guard lock(kept_mutex_);
  if (kept.open()) kept_.push_back(std::move(kept));
}

Task<void> Server::refuse_tls(Connection& connection) {
  refused_.spoke_tls.fetch_add(1);
  log_.seldom(
      LogLevel::warning, "tls_on_a_plain_port", {},
      {{"peer", connection.counted.peer},
       {"next", fmt::format("the client uses https:// on {}, which serves plain HTTP: use http:// there, or set "
                            "{}tls_cert and {}tls_key",
                            address(), options_.setting_prefix, options_.setting_prefix)}});
  // To the client's TLS this is no TLS, which it says at once.
  co_await refuse(connection, {400, "this port serves plain HTTP and a TLS handshake came: use http://"});
}

Task<void> Server::refuse_plain_http(Connection& connection) {
  refused_.spoke_plain_http.fetch_add(1);
  log_.seldom(
      LogLevel::warning, "plain_http_on_a_tls_port", {},
      {{"peer", connection.counted.peer},
       {"next", fmt::format("the client uses http:// on {}, which serves TLS: use https:// there", address())}});
  connection.transport.without_tls();
  co_await refuse(connection, {400, "this port serves TLS and a plain HTTP request came: use https://"});
}

Task<void> Server::refuse(Connection& connection, const ParseFault& fault) {
  if (connection.gives_way) co_return;
  const std::string text = refusal_text(fault, options_.answer_headers);
  connection.transport.deadline_after(options_.timeouts.write);
  const IoResult result = co_await connection.transport.write(text);
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
