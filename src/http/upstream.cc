#include "http/upstream.h"

#include "net/connect.h"

#include <fmt/format.h>

namespace oncekey {

constexpr std::chrono::milliseconds kSweep{1000};
// Bodies up to here leave together with their head: they fit into the buffers on the way, so that writing one does not
// wait for the upstream to read it.
constexpr std::size_t kSentAtOnceBytes = 64u << 10;

struct UpstreamCall::Connection {
  explicit Connection(std::unique_ptr<Transport> connected) : transport(std::move(connected)) {}
  std::unique_ptr<Transport> transport;
  ReadBuffer buffer;
  MonotonicTime idle_since;
  bool fresh = true;        // not used for a call before this one
  bool body_unsent = false; // a long body is on its way, or did not get there
};

UpstreamPool::UpstreamPool(UpstreamOptions options, Loop& loop, std::atomic<std::uint32_t>& in_use,
                           std::atomic<std::uint32_t>* to_this)
    : options_(std::move(options)), loop_(loop), in_use_(in_use), to_this_(to_this), sweeper_(loop, [this] {
        sweep();
      }) {
  sweeper_.after(kSweep);
}

UpstreamPool::~UpstreamPool() = default;

Result<std::unique_ptr<UpstreamPool>> UpstreamPool::make(UpstreamOptions options, Loop& loop,
                                                         std::atomic<std::uint32_t>& in_use,
                                                         std::atomic<std::uint32_t>* to_this) {
  std::unique_ptr<UpstreamPool> pool(new UpstreamPool(std::move(options), loop, in_use, to_this));
  if (const Status trusted = pool->read_trusted_certificates(); !trusted) return trusted.fault();
  return pool;
}

Status UpstreamPool::read_trusted_certificates() {
  if (!options_.server.tls) return ok_status();
  Result<TlsContext> context = client_tls({.ca_file = options_.ca_file, .ca_setting = options_.ca_setting});
  if (!context) return std::move(context).fault();
  tls_ = *std::move(context);
  return ok_status();
}

void UpstreamPool::sweep() {
  const MonotonicTime oldest = std::chrono::steady_clock::now() - options_.idle_timeout;
  std::erase_if(idle_, [&](const auto& connection) { return connection->idle_since < oldest; });
  sweeper_.after(kSweep);
}

std::shared_ptr<UpstreamCall::Connection> UpstreamPool::take_idle() {
  const MonotonicTime now = std::chrono::steady_clock::now();
  while (!idle_.empty()) {
    std::shared_ptr<UpstreamCall::Connection> connection = std::move(idle_.back());
    idle_.pop_back();
    const auto idle = now - connection->idle_since;
    // Anything to read on an idle connection is either its end or a response to no request.
    if (idle <= options_.idle_timeout && connection->transport->quiet()) return connection;
  }
  return nullptr;
}

void UpstreamPool::give_back(std::shared_ptr<UpstreamCall::Connection> connection) {
  if (idle_.size() >= options_.max_idle) return;
  connection->transport->no_deadline();
  connection->fresh = false;
  connection->idle_since = std::chrono::steady_clock::now();
  idle_.push_back(std::move(connection));
}

UpstreamCall::~UpstreamCall() {
  if (counted_) pool_.in_use_.fetch_sub(1);
  if (counted_ && pool_.to_this_ != nullptr) pool_.to_this_->fetch_sub(1);
  // Ends write_body() if it is still at work: it is not awaited, and the body it reads from may be destroyed now.
  if (connection_ && connection_->body_unsent) connection_->transport->close();
  if (connection_ && reusable_) pool_.give_back(std::move(connection_));
}

ByteStream UpstreamCall::stream() { return {*connection_->transport, connection_->buffer}; }

void UpstreamCall::deadline(MonotonicTime due) {
  if (connection_) connection_->transport->deadline(due);
}

CallError UpstreamCall::fail(const IoResult& result, std::string_view doing) {
  reusable_ = false;
  const bool late = connection_ && connection_->transport->expired();
  reason_ = late ? fmt::format("timed out {}", doing) : fmt::format("{} {}", result.error.message(), doing);
  return late ? CallError::timed_out : CallError::broken;
}

CallError UpstreamCall::unusable_head(std::string_view why, ResponseHead& out) {
  reason_ = why;
  out.status = final_status(connection_->buffer.unread()).value_or(0);
  return CallError::unusable;
}

Task<CallError> UpstreamCall::connect(MonotonicTime due) {
  const UpstreamOptions& options = pool_.options_;
  const MonotonicTime connect_due = std::min(due, std::chrono::steady_clock::now() + options.connect_timeout);
  Connected connected =
      co_await oncekey::connect(pool_.loop_, options.server.host, options.server.port, pool_.tls_, connect_due);
  if (connected.failure == ConnectFailure::none) {
    connection_ = std::make_shared<Connection>(std::move(connected.transport));
    co_return CallError::none;
  }
  reason_ = std::move(connected.reason);
  failed_for_good_ = connected.failure == ConnectFailure::no_such_name ||
                     connected.failure == ConnectFailure::distrusted || connected.failure == ConnectFailure::no_tls;
  co_return connected.failure == ConnectFailure::own_shortage ? CallError::full : CallError::not_sent;
}

// A long body is written beside the call.
static std::string_view sent_at_once(std::string_view body) {
  return body.size() > kSentAtOnceBytes ? std::string_view{} : body;
}

void UpstreamCall::write_head(const UpstreamRequest& request, Framing framing, std::uint64_t content_length) {
  head_.reserve(request.method.size() + request.target.size() + request.headers.lines().size() + 96);
  head_.append(request.method).append(" ").append(request.target).append(" HTTP/1.1\r\n");
  // A client of HTTP/1.0 need not say which host it means; HTTP/1.1 must.
  if (!request.headers.has("Host")) head_.append("Host: ").append(pool_.options_.server.authority).append("\r\n");
  head_.append(request.headers.lines());
  // A POST without a body still says so: servers answer 411 otherwise (RFC 9110, 8.6).
  const bool says_zero = framing == Framing::none && request.method != "GET" && request.method != "HEAD" &&
                         request.method != "DELETE" && request.method != "OPTIONS";
  if (framing == Framing::length || says_zero) {
    head_.append("Content-Length: ").append(fmt::format_int(content_length).c_str()).append("\r\n");
  }
  if (framing == Framing::chunked) head_.append("Transfer-Encoding: chunked\r\n");
  head_.append("\r\n");
}

// Not a coroutine: a request that fits into the buffer of an idle connection, as nearly all do, needs none.
Task<CallError> UpstreamCall::send(const UpstreamRequest& request, Framing framing, std::uint64_t content_length,
                                   std::string_view body, MonotonicTime due) {
  head_request_ = request.method == "HEAD";
  websocket_ = request.websocket;
  chunked_ = framing == Framing::chunked;
  body_follows_ = framing != Framing::none && (chunked_ || body.size() != content_length);
  write_head(request, framing, content_length);

  // Connections that idle in a thread's pool do not count: they are few.
  counted_ = true;
  if (pool_.to_this_ != nullptr) pool_.to_this_->fetch_add(1);
  if (pool_.in_use_.fetch_add(1) >= pool_.options_.max_connections) {
    reason_ = "as many calls to the upstream as max_upstream_connections allows";
    return CallError::full;
  }
  connection_ = pool_.take_idle();
  if (!connection_) return send_on_new_connection(body, due);
  connection_->transport->deadline(due);
  Task<IoResult> writing = connection_->transport->write(head_, sent_at_once(body));
  if (!writing.await_ready()) return finish_sending(std::move(writing), body, due);
  const std::optional<CallError> end = written(writing.await_resume(), body);
  return end ? *end : send_on_new_connection(body, due);
}

Task<CallError> UpstreamCall::finish_sending(Task<IoResult> writing, std::string_view body, MonotonicTime due) {
  const IoResult result = co_await std::move(writing);
  if (const std::optional<CallError> end = written(result, body)) co_return *end;
  co_return co_await send_on_new_connection(body, due);
}

Task<CallError> UpstreamCall::send_on_new_connection(std::string_view body, MonotonicTime due) {
  const CallError error = co_await connect(due);
  if (error != CallError::none) co_return error;
  connection_->transport->deadline(due);
  const IoResult result = co_await connection_->transport->write(head_, sent_at_once(body));
  co_return *written(result, body);
}

std::optional<CallError> UpstreamCall::written(const IoResult& result, std::string_view body) {
  if (result.error) {
    // A kept connection that the upstream closed in the meantime takes no byte at all: then, and only then, a new one
    // may be tried. TLS hides how much of its own framing went out, so there it counts as sent.
    const bool untouched = result.bytes == 0 && !pool_.options_.server.tls && !connection_->transport->expired();
    const bool again = untouched && !connection_->fresh;
    const CallError error = fail(result, "sending the request");
    if (!again) return untouched ? CallError::not_sent : error;
    connection_.reset();
    return std::nullopt;
  }
  if (sent_at_once(body).size() < body.size()) {
    connection_->body_unsent = true;
    spawn(write_body(connection_, body),
          [connection = connection_](const std::exception&) { connection->transport->close(); });
  }
  return CallError::none;
}

// Runs beside the call, which learns of a failure by what it reads: the answer that came first, or the end.
Task<void> UpstreamCall::write_body(std::shared_ptr<Connection> connection, std::string_view body) {
  const IoResult result = co_await connection->transport->write(body);
  if (!result.error) connection->body_unsent = false;
}

bool UpstreamCall::may_be_used_again() const {
  return keep_alive_ && !body_follows_ && !connection_->body_unsent && connection_->buffer.empty();
}

Task<CallError> UpstreamCall::send_piece(std::string_view piece) {
  if (piece.empty()) co_return CallError::none;
  std::string framed;
  if (chunked_) {
    framed = fmt::format("{:x}\r\n", piece.size());
    piece = framed.append(piece).append("\r\n");
  }
  const IoResult result = co_await connection_->transport->write(piece);
  co_return result.error ? fail(result, "sending the request body") : CallError::none;
}

Task<CallError> UpstreamCall::send_end() {
  body_follows_ = false;
  if (!chunked_) co_return CallError::none;
  const IoResult result = co_await connection_->transport->write("0\r\n\r\n");
  co_return result.error ? fail(result, "sending the request body") : CallError::none;
}

Task<CallError> UpstreamCall::read_head(ResponseHead& out) {
  ReadBuffer& buffer = connection_->buffer;
  std::optional<std::size_t> length;
  while (!(length = head_length(buffer.unread()))) {
    if (buffer.unread().size() > pool_.options_.max_header_bytes) break;
    if (buffer.unread().find("\n\n") != std::string_view::npos) {
      co_return unusable_head("malformed response: its lines end in bare line feeds", out);
    }
    IoResult got;
    while (!connection_->transport->read_now(buffer.room(kReadBytes), got)) co_await connection_->transport->readable();
    if (got.error) co_return fail(got, "waiting for the response");
    buffer.received(got.bytes);
  }
  if (!length || *length > pool_.options_.max_header_bytes) {
    co_return unusable_head("the response head is longer than max_header_bytes", out);
  }
  parser_.emplace(head_request_ ? HeadOnly::yes : HeadOnly::no);
  const ParseFault fault = parser_->parse_head(buffer.unread().substr(0, *length), out);
  if (fault) co_return unusable_head(fmt::format("malformed response: {}", fault.detail), out);
  if (out.status == 101 && !websocket_) co_return unusable_head("101 without an Upgrade having been asked for", out);
  if (out.status == 101 && !grants_websocket(out)) co_return unusable_head("101 to something else than WebSocket", out);
  buffer.consume(*length);
  // An upstream that refuses an upgrade may still be in doubt about what comes next on the connection.
  keep_alive_ = out.keep_alive && !websocket_;
  if (out.status >= 200 && parser_->done()) reusable_ = may_be_used_again();
  co_return CallError::none;
}

Task<CallError> UpstreamCall::read_piece(std::string_view& out) {
  if (const std::optional<CallError> error = next_received(out)) return *error;
  return receive_piece(out);
}

// The next piece if it has been received already; nothing if more has to be read first.
std::optional<CallError> UpstreamCall::next_received(std::string_view& out) {
  const bool was_done = parser_->done();
  const std::size_t unread_max = pool_.options_.max_header_bytes + kReadBytes;
  ParseFault fault;
  const std::optional<Piece> piece = next_piece(*parser_, connection_->buffer, unread_max, fault, out);
  // Bytes behind the end of a response belong to no request: such a connection is not used again (RFC 9112, 6.3).
  if (!was_done && parser_->done()) reusable_ = may_be_used_again();
  if (!piece) return std::nullopt;
  if (*piece != Piece::broken) return CallError::none;
  reason_ = fault.status == 431 ? "a chunk header or trailer section of the response is too long"
                                : fmt::format("malformed response body: {}", fault.detail);
  return CallError::unusable;
}

Task<CallError> UpstreamCall::receive_piece(std::string_view& out) {
  ReadBuffer& buffer = connection_->buffer;
  for (;;) {
    if (const std::optional<CallError> error = next_received(out)) co_return *error;
    const IoResult got = co_await connection_->transport->read_some(buffer.room(kReadBytes));
    if (is_end(got.error)) {
      // With a body that did not get there, the end may be a reset whose error the writing side has used up: it does
      // not prove that an answer without a length is whole.
      const ParseFault fault = parser_->end_of_input();
      if (!fault && !connection_->body_unsent) co_return CallError::none;
      co_return fail(got, "in the middle of the response");
    }
    if (got.error) co_return fail(got, "reading the response");
    buffer.received(got.bytes);
  }
}

} // namespace oncekey
