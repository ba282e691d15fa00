// upstream: calls to the API behind the gateway, over a pool of connections.
//
// What matters about a call that fails is whether a byte of it may have left: if not, the request was certainly not
// executed. UpstreamCall keeps that knowledge. A connection goes back to the pool only after a response whose framing
// left no doubt; it is never used again otherwise.
#pragma once

#include "base/url.h"
#include "http/exchange.h"
#include "http/forwarding.h"

namespace oncekey {

// Idle connections one thread keeps; more would only be closed by the upstream.
inline constexpr std::size_t kIdleUpstreamMax = 256;

struct UpstreamOptions {
  Url server;
  std::string ca_file{};                  // PEM; the system's certificates when empty
  std::string ca_setting = "upstream_ca"; // what messages about it call it
  std::chrono::milliseconds connect_timeout;
  std::chrono::milliseconds idle_timeout;
  std::uint64_t max_header_bytes;
  std::uint32_t max_connections; // in use at one time, of all threads together
  std::size_t max_idle = kIdleUpstreamMax;
};

enum class CallError {
  none,
  not_sent,  // no byte of the request has left
  full,      // the limit on connections is reached; no byte has left
  broken,    // reset or short response after a byte may have left
  timed_out, // the deadline passed after a byte may have left
  unusable,  // a response came, and it is malformed, ambiguous or over a limit
};

class UpstreamPool;

class UpstreamCall {
 public:
  explicit UpstreamCall(UpstreamPool& pool) : pool_(pool) {}
  ~UpstreamCall();

  // Connects (or takes an idle connection) and sends head and body. `framing` is length or none with the whole body
  // given, or chunked/length with the body to follow by send_piece(). The call must be over by `due`. `request` is not
  // used any more once this returns its task. A long body is still on its way when the task is over, and must live as
  // long as the call: an upstream may answer before it has read all of it, and a whole answer is the outcome however
  // much of the request was read for it.
  Task<CallError> send(const UpstreamRequest& request, Framing framing, std::uint64_t content_length,
                       std::string_view body, MonotonicTime due);
  Task<CallError> send_piece(std::string_view piece);
  Task<CallError> send_end();

  // The next response head: interim ones come out too, the final one has a status of 200 or more. Of an unusable one
  // the status alone is told, or 0 if it has no status line of a final response.
  Task<CallError> read_head(ResponseHead& out);
  // The next piece of the final response's body; an empty one at its end.
  Task<CallError> read_piece(std::string_view& out);

  // After a 101, which comes only where the request asked for WebSocket: the connection as a stream of bytes.
  ByteStream stream();

  void deadline(MonotonicTime due);
  // Why the last call failed, for the log.
  std::string_view reason() const { return reason_; }
  // Another try would fail in the same way: the name does not exist, or the certificate is not trusted.
  bool failed_for_good() const { return failed_for_good_; }

 private:
  struct Connection;
  friend class UpstreamPool;

  static Task<void> write_body(std::shared_ptr<Connection> connection, std::string_view body);
  void write_head(const UpstreamRequest& request, Framing framing, std::uint64_t content_length);
  Task<CallError> send_on_new_connection(std::string_view body, MonotonicTime due);
  Task<CallError> finish_sending(Task<IoResult> writing, std::string_view body, MonotonicTime due);
  // What came of writing head and body; nothing if another connection may be tried.
  std::optional<CallError> written(const IoResult& result, std::string_view body);
  bool may_be_used_again() const;
  Task<CallError> connect(MonotonicTime due);
  std::optional<CallError> next_received(std::string_view& out);
  Task<CallError> receive_piece(std::string_view& out);
  CallError fail(const IoResult& result, std::string_view doing);
  CallError unusable_head(std::string_view why, ResponseHead& out);

  UpstreamPool& pool_;
  std::shared_ptr<Connection> connection_; // shared with write_body() alone
  std::optional<ResponseParser> parser_;
  std::string head_;     // of the request, as it is sent
  bool counted_ = false; // in the pool's in_use
  bool head_request_ = false;
  bool websocket_ = false; // asked for
  bool chunked_ = false;
  bool body_follows_ = false; // by send_piece(), until send_end()
  bool keep_alive_ = false;
  bool reusable_ = false;
  bool failed_for_good_ = false;
  std::string reason_;
};

// The connections of one thread.
class UpstreamPool {
 public:
  // `in_use` counts the calls under way in all threads, also to other upstreams; `to_this` those to this one.
  static Result<std::unique_ptr<UpstreamPool>> make(UpstreamOptions options, Loop& loop,
                                                    std::atomic<std::uint32_t>& in_use,
                                                    std::atomic<std::uint32_t>* to_this = nullptr);
  ~UpstreamPool();

  // Closes idle connections, for a clean end of the event loop.
  void close_idle() { idle_.clear(); }
  // For the connections that are made from now on; those there are stay. On its thread.
  Status read_trusted_certificates();

 private:
  friend class UpstreamCall;
  UpstreamPool(UpstreamOptions options, Loop& loop, std::atomic<std::uint32_t>& in_use,
               std::atomic<std::uint32_t>* to_this);
  std::shared_ptr<UpstreamCall::Connection> take_idle();
  void give_back(std::shared_ptr<UpstreamCall::Connection> connection);
  void sweep();

  UpstreamOptions options_;
  Loop& loop_;
  std::atomic<std::uint32_t>& in_use_;
  std::atomic<std::uint32_t>* to_this_;
  TlsContext tls_;
  std::vector<std::shared_ptr<UpstreamCall::Connection>> idle_; // newest last
  Timer sweeper_;
};

} // namespace oncekey
