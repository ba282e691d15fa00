// exchange: one request on a client's connection, and the answer to it.
//
// A handler gets an Exchange, reads the body whole, piece by piece or not at all, and sends exactly one final response.
// The exchange takes care of what HTTP asks for on the way: 100 Continue, Content-Length or chunks as the client's
// version allows, no body where none belongs, Date, and closing the connection when going on would be unsafe.
#pragma once

#include "base/shares.h"
#include "http/parser.h"
#include "net/transport.h"

namespace oncekey {

struct ExchangeTimeouts {
  std::chrono::milliseconds request_headers; // the whole head, from its first byte
  std::chrono::milliseconds request_body;    // the patience of a body's Pace
  std::chrono::milliseconds idle;
  std::chrono::milliseconds write; // the patience of an answer's Pace
  std::uint64_t min_rate;          // bytes a second, of bodies and of answers that wait to be read
};

// Bytes received and not yet used, at the front of a growing buffer.
class ReadBuffer {
 public:
  std::string_view unread() const { return std::string_view(bytes_).substr(at_, end_ - at_); }
  bool empty() const { return at_ == end_; }
  void consume(std::size_t count) { at_ += count; }
  // Room for at least `least` more bytes. Invalidates views of unread().
  std::span<char> room(std::size_t least);
  void received(std::size_t count) { end_ += count; }

 private:
  std::string bytes_;
  std::size_t at_ = 0;
  std::size_t end_ = 0;
};

// A connection whose HTTP is over; `buffer` holds what has been received of it already.
struct ByteStream {
  Transport& transport;
  ReadBuffer& buffer;
};

enum class BodyRead {
  whole,
  too_large, // more than the limit; the rest is unread
  refused,   // `admit` said no; the rest is unread
  broken,    // the client went away or sent nonsense; `fault` of the exchange says what to answer, if anything
};

enum class Piece { data, end, broken };

// The next piece of a body out of what has been received of it; nothing if more has to be read first. A chunk header or
// trailer section that does not end within `unread_max` bytes is not a body.
template <class Head>
std::optional<Piece> next_piece(MessageParser<Head>& parser, ReadBuffer& buffer, std::size_t unread_max,
                                ParseFault& fault, std::string_view& out) {
  out = {};
  while (!parser.done()) {
    if (buffer.empty()) return std::nullopt;
    BodyPiece piece;
    fault = parser.parse_body(buffer.unread(), piece);
    if (fault) return Piece::broken;
    buffer.consume(piece.consumed);
    out = piece.bytes;
    if (!out.empty()) return Piece::data;
    if (piece.consumed > 0) continue;
    if (buffer.unread().size() <= unread_max) return std::nullopt;
    fault = {431, "a chunk header or trailer section is too long"};
    return Piece::broken;
  }
  return Piece::end;
}

// What the access log says of a request beside what its exchange knows. Filled in by the handlers.
struct AccessNote {
  std::string route;
  std::string decision;
  std::string key;   // a short hash
  std::string trace; // the trace id it was given here, or nothing: then its traceparent counts
  std::optional<std::chrono::nanoseconds> upstream;
};

// A request that is traced: which trace and span it is, and what the handlers tell of it.
struct TraceNote {
  // A part of the request that took time. `name` is a literal.
  struct Step {
    std::string_view name;
    std::array<std::uint8_t, 8> span{};
    std::chrono::steady_clock::time_point begin;
    std::chrono::steady_clock::time_point end;
    std::string fault; // why it failed; empty if it did not
  };
  struct Link {
    std::array<std::uint8_t, 16> trace{};
    std::array<std::uint8_t, 8> span{};
  };
  // More are not kept: a request that waits may ask the store again and again.
  static constexpr std::size_t kStepsMax = 32;

  std::array<std::uint8_t, 16> trace{};
  std::array<std::uint8_t, 8> span{};
  std::vector<Step> steps;
  std::optional<Link> link; // to the execution whose answer was replayed
};

class Exchange {
 public:
  Exchange(Transport& transport, ReadBuffer& buffer, RequestHead head, RequestParser parser, std::string_view peer,
           const ExchangeTimeouts& timeouts, Party* address);
  Exchange& operator=(Exchange&&) = delete;

  const RequestHead& request() const { return head_; }
  std::string_view peer() const { return peer_; } // the client's address without its port
  Party* address() const { return address_; }     // whose share the request counts in; null for a trusted proxy
  bool secure() const { return transport_.secure(); }
  const CertificateName* certificate() const { return transport_.certificate(); } // null without one
  Loop& loop() { return transport_.loop(); }
  // Null unless requests are logged.
  AccessNote* note() const { return note_; }
  void note_into(AccessNote& note) { note_ = &note; }
  // Null unless the request is traced.
  TraceNote* trace() const { return trace_; }
  void trace_into(TraceNote& note) { trace_ = &note; }

  // Appends the body to `out`. When it is too large, `out` holds what was read and the rest can still be had piecewise.
  // `admit` is asked before the memory for it grows, with the bytes of the growth.
  Task<BodyRead> read_body(
      std::string& out, std::uint64_t limit, std::function<bool(std::size_t)> admit = [](std::size_t) { return true; });
  // Appends the body's beginning to `out`: `enough` bytes at least, where `too_large` says that there may be more, or
  // all of it, which is `whole`. `enough` is more than 0.
  Task<BodyRead> read_beginning(std::string& out, std::size_t enough, std::function<bool(std::size_t)> admit);
  // Says 100 Continue if the client waits for it. read_piece() does so by itself; a handler that reads and writes at
  // the same time does it first, so that two writes cannot meet.
  Task<void> invite_body();
  // The next piece of the body, a view that stays valid until the next call.
  Task<Piece> read_piece(std::string_view& out);
  // After `broken`: the error to answer with; status 0 when the client is gone.
  const ParseFault& fault() const { return fault_; }

  // A whole response. `headers` must not hold Transfer-Encoding or Connection. A Content-Length among them counts in an
  // answer to HEAD and in a 304, where it describes a body that is not sent, and is left out elsewhere. `body` must
  // live until the task is over; nothing else is used once this has returned it.
  Task<void> send(int status, std::string_view reason, const Headers& headers, std::string_view body);
  // A whole response of the http room's own: a small problem+json document. A 503 says when to come back. `code`
  // becomes part of its type, so that clients can tell it from others of the same status.
  Task<void> send_problem(int status, std::string_view detail, std::string_view code = {});
  // A response in pieces. Without a length, chunks are used or, for HTTP/1.0, the end of the connection. False when the
  // client is gone. `length` of an answer to HEAD is announced and no body follows.
  Task<bool> send_head(int status, std::string_view reason, const Headers& headers,
                       std::optional<std::uint64_t> length);
  Task<bool> send_piece(std::string_view piece);
  Task<bool> send_end();
  // An interim response (1xx). Left out for HTTP/1.0 clients, which do not know them, and for a client that does not
  // read: the final answer must not wait for it.
  Task<void> send_interim(int status, std::string_view reason, const Headers& headers);

  // 101 as the final answer: no HTTP follows on this connection, which is the handler's as a stream of bytes. `headers`
  // include Connection and Upgrade. False when the client is gone.
  Task<bool> switch_protocols(std::string_view reason, const Headers& headers);
  ByteStream stream() { return {transport_, buffer_}; }
  // What the stream carried after that, for the access log.
  void carried(std::uint64_t received_bytes, std::uint64_t sent_bytes) {
    received_bytes_ += received_bytes;
    sent_bytes_ += sent_bytes;
  }
  bool switched() const { return switched_; }

  // Ends a read_piece() under way with `broken`. For a handler whose answer is out before the body is in.
  void stop_reading();
  // The response cannot be finished: cut the connection so that the client cannot take it for whole.
  void abort();
  // Adds a field to the final answer, unless that has one of the name already.
  void add_to_answer(std::string_view name, std::string_view value) { added_.add(name, value); }
  // Adds a field to the final answer if that is the gateway's own, and not the upstream's or a replay of it.
  void add_to_own_answer(std::string_view name, std::string_view value) { added_to_own_.add(name, value); }
  // The answer that is sent next is the gateway's own. send_problem() says so by itself.
  void answer_is_own() {
    append(added_, added_to_own_);
    added_to_own_ = {};
  }
  // If this is true when the head of the answer is made, the answer says `Connection: close`, and it is the last one.
  void close_if(const std::atomic<bool>& closing) { closing_ = &closing; }

  bool answered() const { return answered_; }
  int status() const { return status_; }                           // of the final answer; 0 before it is sent
  std::uint64_t received_bytes() const { return received_bytes_; } // of the body, or of a stream
  std::uint64_t sent_bytes() const { return sent_bytes_; }         // of the answer's body, or of a stream
  bool client_gone() const { return client_gone_; }
  // For the server: may another request follow on this connection?
  bool reusable() const { return answered_ && keep_alive_ && !client_gone_ && parser_.done(); }
  bool body_unread() const { return !parser_.done(); }

 private:
  using Admit = std::function<bool(std::size_t)>;
  // Until the body ends or `out` holds more than `limit`; it is not made larger than `most` without need.
  Task<BodyRead> read_up_to(std::string& out, std::uint64_t limit, std::uint64_t most, Admit admit);
  Task<BodyRead> receive_up_to(std::string& out, std::uint64_t limit, std::uint64_t most, Admit admit);
  bool may_invite() const { return head_.expects_continue && !continue_sent_; }
  std::optional<Piece> next_received(std::string_view& out);
  Task<Piece> receive_piece(std::string_view& out);
  void begin_head(std::string& out, int status, std::string_view reason, const Headers& headers);
  Task<void> finish_sending(Task<IoResult> writing);
  void append_added(std::string& out, const Headers& headers) const;
  // False when the client is gone.
  bool note_write(const IoResult& result);

  Transport& transport_;
  ReadBuffer& buffer_;
  RequestHead head_;
  RequestParser parser_;
  std::string_view peer_;
  Party* address_;
  const ExchangeTimeouts& timeouts_;
  Pace reading_;
  Pace writing_;
  ParseFault fault_;
  Headers added_;
  Headers added_to_own_;
  std::string sent_head_; // of the answer, as it is sent
  AccessNote* note_ = nullptr;
  TraceNote* trace_ = nullptr;
  std::uint64_t received_bytes_ = 0;
  std::uint64_t sent_bytes_ = 0;
  int status_ = 0;
  bool continue_sent_ = false;
  bool keep_alive_;
  const std::atomic<bool>* closing_ = nullptr;
  bool answered_ = false;
  bool client_gone_ = false;
  bool switched_ = false;
  bool chunked_ = false;
  bool body_allowed_ = true;
};

// Makes room in `body` for `more` bytes: twice what it has, at most `most` if that is enough. `admit` is asked for the
// growth first, so that what is counted is the memory that is taken. False if it refuses; nothing has changed then.
template <class Admit>
bool grow_body(std::string& body, std::size_t more, std::uint64_t most, Admit admit) {
  const std::size_t needed = body.size() + more;
  const std::size_t has = body.empty() ? 0 : body.capacity();
  if (needed <= has) return true;
  std::size_t wanted = std::max<std::size_t>(needed, std::min<std::uint64_t>(2 * has, most));
  if (!admit(wanted - has)) {
    if (wanted == needed || !admit(needed - has)) return false;
    wanted = needed;
  }
  std::string larger; // reserve() of a string that holds something would at least double it
  larger.reserve(wanted);
  larger.append(body);
  body.swap(larger);
  return true;
}

// The body of send_problem(): a problem+json document.
std::string problem_body(int status, std::string_view detail, std::string_view code = {});

// "Sun, 06 Nov 1994 08:49:37 GMT", of this second.
std::string_view http_date();

} // namespace oncekey
