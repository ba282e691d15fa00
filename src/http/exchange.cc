#include "http/exchange.h"

#include "base/json_text.h"
#include "base/reasons.h"

#include <fmt/format.h>

#include <ctime>

namespace oncekey {
namespace {

void append_number(std::string& out, std::uint64_t number) {
  const fmt::format_int digits(number);
  out.append(digits.data(), digits.size());
}

void append_length(std::string& out, std::uint64_t length) {
  out.append("Content-Length: ");
  append_number(out, length);
  out.append("\r\n");
}

} // namespace

std::span<char> ReadBuffer::room(std::size_t least) {
  if (at_ == end_) at_ = end_ = 0;
  if (bytes_.size() - end_ < least && at_ > 0) {
    bytes_.erase(0, at_);
    end_ -= at_;
    at_ = 0;
  }
  if (bytes_.size() - end_ < least) bytes_.resize(end_ + least);
  return {bytes_.data() + end_, bytes_.size() - end_};
}

std::string problem_body(int status, std::string_view detail, std::string_view code) {
  const std::string type = code.empty() ? "about:blank" : fmt::format("urn:oncekey:problem:{}", code);
  return problem_json(type, reason_of(status), status, detail);
}

std::string_view http_date() {
  struct Cached {
    std::time_t second = 0;
    char text[32];
    std::size_t length = 0;
  };
  thread_local Cached cached;
  const std::time_t now = std::time(nullptr);
  if (now != cached.second) {
    std::tm parts{};
    gmtime_r(&now, &parts);
    // Not strftime: its names follow the locale, HTTP's do not.
    static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                              "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    const auto end = fmt::format_to_n(cached.text, sizeof cached.text, "{}, {:02} {} {} {:02}:{:02}:{:02} GMT",
                                      kDays[parts.tm_wday], parts.tm_mday, kMonths[parts.tm_mon], parts.tm_year + 1900,
                                      parts.tm_hour, parts.tm_min, parts.tm_sec);
    cached.length = end.size;
    cached.second = now;
  }
  return {cached.text, cached.length};
}

Exchange::Exchange(Transport& transport, ReadBuffer& buffer, RequestHead head, RequestParser parser,
                   std::string_view peer, const ExchangeTimeouts& timeouts, Party* address)
    : transport_(transport),
      buffer_(buffer),
      head_(std::move(head)),
      parser_(std::move(parser)),
      peer_(peer),
      address_(address),
      timeouts_(timeouts),
      reading_(timeouts.request_body, timeouts.min_rate),
      writing_(timeouts.write, timeouts.min_rate),
      keep_alive_(head_.keep_alive) {}

Task<void> Exchange::invite_body() {
  if (!head_.expects_continue || continue_sent_ || answered_ || parser_.done()) co_return;
  continue_sent_ = true;
  // A client that has begun to send did not wait.
  if (!buffer_.empty()) co_return;
  transport_.deadline_after(timeouts_.write);
  note_write(co_await transport_.write("HTTP/1.1 100 Continue\r\n\r\n"));
}

Task<Piece> Exchange::read_piece(std::string_view& out) {
  if (!may_invite()) {
    if (const std::optional<Piece> piece = next_received(out)) return *piece;
  }
  return receive_piece(out);
}

// The next piece if it has been received already; nothing if more has to be read first.
std::optional<Piece> Exchange::next_received(std::string_view& out) {
  const std::optional<Piece> piece = next_piece(parser_, buffer_, kReadBytes, fault_, out);
  if (piece == Piece::broken) keep_alive_ = false;
  received_bytes_ += out.size();
  return piece;
}

Task<Piece> Exchange::receive_piece(std::string_view& out) {
  if (head_.expects_continue) co_await invite_body();
  for (;;) {
    if (const std::optional<Piece> piece = next_received(out)) co_return *piece;
    const MonotonicTime before = std::chrono::steady_clock::now();
    transport_.deadline(before + reading_.left());
    const IoResult result = co_await transport_.read_some(buffer_.room(kReadBytes));
    reading_.moved(result.bytes, std::chrono::steady_clock::now() - before);
    if (result.error) {
      keep_alive_ = false;
      fault_ = transport_.expired() ? ParseFault{408, "the request body did not arrive in time"} : ParseFault{};
      client_gone_ = !transport_.expired();
      co_return Piece::broken;
    }
    buffer_.received(result.bytes);
  }
}

Task<BodyRead> Exchange::read_body(std::string& out, std::uint64_t limit, std::function<bool(std::size_t)> admit) {
  const bool announced = head_.framing == Framing::length;
  if (announced && head_.content_length > limit) return BodyRead::too_large;
  return read_up_to(out, limit, announced ? head_.content_length : limit, std::move(admit));
}

Task<BodyRead> Exchange::read_beginning(std::string& out, std::size_t enough, std::function<bool(std::size_t)> admit) {
  return read_up_to(out, enough - 1, enough, std::move(admit));
}

// The end of reading a body that this piece is, if it is one. Else the piece is appended.
template <class Admit>
static std::optional<BodyRead> append_piece(Piece piece, std::string_view bytes, std::string& out, std::uint64_t most,
                                            const Admit& admit) {
  if (piece == Piece::end) return BodyRead::whole;
  if (piece == Piece::broken) return BodyRead::broken;
  const bool admitted = grow_body(out, bytes.size(), most, admit);
  out.append(bytes);
  return admitted ? std::nullopt : std::optional(BodyRead::refused);
}

// Not a coroutine: a body that came together with its head, as most do, needs none.
Task<BodyRead> Exchange::read_up_to(std::string& out, std::uint64_t limit, std::uint64_t most, Admit admit) {
  while (out.size() <= limit) {
    std::string_view bytes;
    const std::optional<Piece> piece = may_invite() ? std::nullopt : next_received(bytes);
    if (!piece) return receive_up_to(out, limit, most, std::move(admit));
    if (const auto end = append_piece(*piece, bytes, out, most, admit)) return *end;
  }
  return BodyRead::too_large;
}

Task<BodyRead> Exchange::receive_up_to(std::string& out, std::uint64_t limit, std::uint64_t most, Admit admit) {
  while (out.size() <= limit) {
    std::string_view bytes;
    const Piece piece = co_await read_piece(bytes);
    if (const auto end = append_piece(piece, bytes, out, most, admit)) co_return *end;
  }
  co_return BodyRead::too_large;
}

bool Exchange::note_write(const IoResult& result) {
  if (result.error) {
    client_gone_ = true;
    keep_alive_ = false;
  }
  return !client_gone_;
}

void Exchange::append_added(std::string& out, const Headers& headers) const {
  for (std::size_t i = 0; i < added_.size(); ++i) {
    const Field field = added_[i];
    if (!headers.has(field.name)) out.append(field.name).append(": ").append(field.value).append("\r\n");
  }
}

void Exchange::begin_head(std::string& out, int status, std::string_view reason, const Headers& headers) {
  // An unread body would be taken for the next request: the connection ends here instead.
  if (!parser_.done() || (closing_ != nullptr && closing_->load(std::memory_order_relaxed))) keep_alive_ = false;
  out.reserve(headers.lines().size() + 160);
  out.append("HTTP/1.1 ");
  append_number(out, static_cast<std::uint64_t>(status));
  out.push_back(' ');
  out.append(reason.empty() ? reason_of(status) : reason);
  out.append("\r\n");
  out.append(headers.lines());
  append_added(out, headers);
  if (!headers.has("Date")) out.append("Date: ").append(http_date()).append("\r\n");
  if (!keep_alive_) {
    out.append("Connection: close\r\n");
  } else if (head_.version < 11) {
    out.append("Connection: keep-alive\r\n");
  }
}

Task<void> Exchange::send(int status, std::string_view reason, const Headers& headers, std::string_view body) {
  ONCEKEY_CHECK(!answered_, "one request gets one answer");
  answered_ = true;
  if (status == kResetContent) body = {};
  std::string& out = sent_head_;
  // The length of a body that is not sent is the upstream's to tell; that of one that is sent is ours.
  const bool told = headers.has("Content-Length");
  const bool describes = head_.method == "HEAD" || status == 304;
  if (told && !describes) {
    begin_head(out, status, reason, fields_but(headers, "Content-Length"));
  } else {
    begin_head(out, status, reason, headers);
  }
  const bool unknown = head_.method == "HEAD" && body.empty();
  if (!status_forbids_body(status) && !(describes && (told || unknown))) {
    append_length(out, body.size());
  }
  out.append("\r\n");
  if (status_forbids_body(status) || head_.method == "HEAD") body = {};
  status_ = status;
  sent_bytes_ = body.size();
  // An answer that fits into the socket's buffer, as nearly all do, needs no coroutine.
  Task<IoResult> writing = transport_.write(out, body, &writing_);
  if (!writing.await_ready()) return finish_sending(std::move(writing));
  note_write(writing.await_resume());
  return std::monostate{};
}

Task<void> Exchange::finish_sending(Task<IoResult> writing) { note_write(co_await std::move(writing)); }

Task<void> Exchange::send_problem(int status, std::string_view detail, std::string_view code) {
  answer_is_own();
  Headers headers;
  headers.add("Content-Type", "application/problem+json");
  headers.add("Cache-Control", "no-store");
  if (status == 503 || (status == 429 && !added_.has("Retry-After"))) headers.add("Retry-After", "1");
  const std::string body = problem_body(status, detail, code);
  co_await send(status, {}, headers, body);
}

Task<bool> Exchange::send_head(int status, std::string_view reason, const Headers& headers,
                               std::optional<std::uint64_t> length) {
  ONCEKEY_CHECK(!answered_, "one request gets one answer");
  answered_ = true;
  status_ = status;
  if (status == kResetContent && head_.method != "HEAD") length = 0;
  body_allowed_ = !status_forbids_body(status) && status != kResetContent && head_.method != "HEAD";
  chunked_ = body_allowed_ && !length && head_.version >= 11;
  if (body_allowed_ && !length && head_.version < 11) keep_alive_ = false;
  std::string out;
  begin_head(out, status, reason, headers);
  // 304 and answers to HEAD may say how long the body would have been; 1xx and 204 may not.
  if (length && status / 100 != 1 && status != 204) {
    append_length(out, *length);
  }
  if (chunked_) out.append("Transfer-Encoding: chunked\r\n");
  out.append("\r\n");
  transport_.deadline_after(timeouts_.write);
  co_return note_write(co_await transport_.write(out));
}

Task<bool> Exchange::send_piece(std::string_view piece) {
  if (client_gone_) co_return false;
  if (piece.empty() || !body_allowed_) co_return true;
  sent_bytes_ += piece.size();
  std::string framed;
  if (chunked_) {
    framed = fmt::format("{:x}\r\n", piece.size());
    piece = framed.append(piece).append("\r\n");
  }
  co_return note_write(co_await transport_.write(piece, {}, &writing_));
}

Task<bool> Exchange::send_end() {
  if (client_gone_ || !chunked_) co_return !client_gone_;
  transport_.deadline_after(timeouts_.write);
  co_return note_write(co_await transport_.write("0\r\n\r\n"));
}

Task<void> Exchange::send_interim(int status, std::string_view reason, const Headers& headers) {
  if (head_.version < 11 || client_gone_) co_return;
  std::string out = fmt::format("HTTP/1.1 {} {}\r\n", status, reason.empty() ? reason_of(status) : reason);
  out.append(headers.lines());
  out.append("\r\n");
  if (!transport_.has_room_for(out.size())) co_return;
  transport_.deadline_after(timeouts_.write);
  note_write(co_await transport_.write(out));
}

Task<bool> Exchange::switch_protocols(std::string_view reason, const Headers& headers) {
  ONCEKEY_CHECK(!answered_, "one request gets one answer");
  answered_ = true;
  switched_ = true;
  status_ = 101;
  keep_alive_ = false;
  std::string out = fmt::format("HTTP/1.1 101 {}\r\n", reason.empty() ? reason_of(101) : reason);
  out.append(headers.lines());
  append_added(out, headers);
  out.append("\r\n");
  transport_.deadline_after(timeouts_.write);
  co_return note_write(co_await transport_.write(out));
}

void Exchange::stop_reading() {
  keep_alive_ = false;
  transport_.deadline(std::chrono::steady_clock::now());
}

void Exchange::abort() {
  keep_alive_ = false;
  client_gone_ = true;
  answered_ = true;
  transport_.reset();
}

} // namespace oncekey
