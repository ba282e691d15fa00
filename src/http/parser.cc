#include "http/parser.h"

#include "base/url.h"
#include "http/plain_head.h"

#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>

#include <algorithm>
#include <cstring>

namespace oncekey {
namespace {

namespace beast_http = boost::beast::http;
using boost::system::error_code;
using BeastView = boost::beast::string_view;

std::string_view view(BeastView text) { return {text.data(), text.size()}; }

// Bounds the fields of a message: more than any real client sends, little enough to walk through for every lookup.
constexpr std::size_t kFieldsMax = 256;
// The options of a connection are a handful; a list of thousands would be walked for every field (RFC 9110, 7.6.1).
constexpr std::size_t kConnectionOptionsMax = 64;
// A chunk extension means nothing to us; its size must still be bounded (RFC 9112, 7.1.1).
constexpr std::size_t kChunkExtensionBytesMax = 4096;

// A body of many small chunks must not carry more in their extensions than it has content.
constexpr std::size_t kAllChunkExtensionsBytesMax = 16u << 10;

// What is wrong with a Transfer-Encoding that is not plain "chunked". Without chunked at its end, or with it twice, the
// end of the body is undefined; an unknown coding in front of it is merely not implemented (RFC 9112, 6.1 and 6.3).
ParseFault fault_of_codings(std::string_view codings) {
  std::size_t chunked = 0;
  std::string_view last;
  for_each_list_item(codings, [&](std::string_view coding) {
    if (equal_ignoring_case(coding, "chunked")) ++chunked;
    last = coding;
  });
  if (chunked == 1 && equal_ignoring_case(last, "chunked"))
    return {501, "the only transfer coding understood is chunked"};
  return {400, "Transfer-Encoding does not end in chunked, or has it twice"};
}

} // namespace

// Collects what basic_parser reports. Body bytes are not copied: the view of the last piece is kept.
template <class Head>
class MessageCollector : public beast_http::basic_parser<std::is_same_v<Head, RequestHead>> {
 public:
  Head head;
  ParseFault fault; // that is ours to find
  std::string_view piece;

 private:
  void fail(int status, std::string_view detail, error_code& ec) {
    fault = {status, detail};
    ec = beast_http::error::bad_field;
  }

  void on_request_impl(beast_http::verb, BeastView method, BeastView target, int number, error_code& ec) override {
    if constexpr (std::is_same_v<Head, RequestHead>) {
      head.method.assign(method.data(), method.size());
      head.target.assign(target.data(), target.size());
    }
    head.version = number;
    ec = {};
  }
  void on_response_impl(int code, BeastView reason, int number, error_code& ec) override {
    if constexpr (std::is_same_v<Head, ResponseHead>) {
      head.status = code;
      head.reason.assign(reason.data(), reason.size());
    }
    head.version = number;
    ec = {};
  }
  void on_field_impl(beast_http::field field, BeastView name, BeastView value, error_code& ec) override {
    ec = {};
    // Trailers are dropped: merging them into the head would let a sender change it after it was judged.
    if (trailers_) return;
    if (head.headers.size() >= kFieldsMax) return fail(431, "more than 256 header fields", ec);
    if (field == beast_http::field::transfer_encoding) {
      if (head.headers.has("Transfer-Encoding")) return fail(400, "Transfer-Encoding is sent more than once", ec);
      // Anything but plain "chunked" is either unknown or a way to hide a body from one of two parsers.
      if (!equal_ignoring_case(view(value), "chunked")) {
        const ParseFault found = fault_of_codings(view(value));
        return fail(found.status, found.detail, ec);
      }
      head.framing = Framing::chunked;
    }
    head.headers.add(view(name), view(value));
  }
  void on_header_impl(error_code& ec) override { ec = {}; }
  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code& ec) override { ec = {}; }
  std::size_t on_body_impl(BeastView body, error_code& ec) override {
    piece = view(body);
    ec = {};
    return body.size();
  }
  void on_chunk_header_impl(std::uint64_t size, BeastView extensions, error_code& ec) override {
    ec = {};
    extension_bytes_ += extensions.size();
    if (extensions.size() > kChunkExtensionBytesMax || extension_bytes_ > kAllChunkExtensionsBytesMax)
      return fail(400, "a chunk extension is longer than 4096 bytes, or all of them longer than 16 KiB", ec);
    trailers_ = size == 0;
  }
  std::size_t on_chunk_body_impl(std::uint64_t, BeastView body, error_code& ec) override {
    return on_body_impl(body, ec);
  }
  void on_finish_impl(error_code& ec) override { ec = {}; }

  bool trailers_ = false;
  std::size_t extension_bytes_ = 0;
};

namespace {

bool is_blank(char c) { return c == ' ' || c == '\t'; }

// What is odd about the lines of a head, and would pass Beast or can be mended.
struct OddLines {
  bool bare_line_feed = false;
  bool folded = false;
  bool blank_before_colon = false;
};

OddLines odd_lines(std::string_view head) {
  OddLines odd;
  for (std::size_t begin = 0; begin < head.size();) {
    const std::size_t end = std::min(head.find('\n', begin), head.size());
    const std::string_view line = head.substr(begin, end - begin);
    if (end < head.size() && !line.ends_with('\r')) odd.bare_line_feed = true;
    if (begin > 0 && !line.empty()) {
      if (is_blank(line.front())) odd.folded = true;
      const std::size_t colon = line.find(':');
      if (colon != std::string_view::npos && colon > 0 && is_blank(line[colon - 1])) odd.blank_before_colon = true;
    }
    begin = end + 1;
  }
  return odd;
}

ParseFault fault_of(const OddLines& odd) {
  if (odd.bare_line_feed) return {400, "a line ends in a bare line feed; lines end in CR LF"};
  if (odd.folded) return {400, "a header line is folded; write each field on one line"};
  return {};
}

ParseFault fault_of(const error_code& ec) {
  using beast_http::error;
  if (ec == error::bad_version) return {505, "HTTP/1.0 and HTTP/1.1 are spoken here"};
  if (ec == error::bad_content_length || ec == error::multiple_content_length) {
    return {400, "Content-Length is not one whole number, or comes with Transfer-Encoding"};
  }
  if (ec == error::bad_transfer_encoding) return {400, "Transfer-Encoding comes with Content-Length, or twice"};
  if (ec == error::bad_method) return {400, "the method is not a token"};
  if (ec == error::bad_target) return {400, "the request target holds a character that is not allowed"};
  if (ec == error::bad_field) return {400, "a field name is not a token directly followed by a colon"};
  if (ec == error::bad_value) return {400, "a field value holds a control character"};
  if (ec == error::bad_line_ending) return {400, "a line does not end in CR LF"};
  if (ec == error::bad_chunk || ec == error::bad_chunk_extension) return {400, "the chunked body is malformed"};
  return {400, "the message is malformed"};
}

bool wants_keep_alive(const Headers& headers, int version) {
  if (lists(headers, "Connection", "close")) return false;
  return version >= 11 || lists(headers, "Connection", "keep-alive");
}

// Feeds a head of known length. Beast stops behind it, so that everything must have been used up.
template <class Head>
ParseFault feed_head(MessageCollector<Head>& parser, std::string_view head, const OddLines& odd) {
  if (const ParseFault fault = fault_of(odd)) return fault;
  parser.head.headers.reserve(head.size() + 64, 16);
  parser.eager(false);
  parser.header_limit(static_cast<std::uint32_t>(head.size() + 1));
  parser.body_limit(boost::none);
  error_code ec;
  std::size_t used = 0;
  while (!parser.is_header_done() && used < head.size() && !ec) {
    used += parser.put({head.data() + used, head.size() - used}, ec);
  }
  if (parser.fault) return parser.fault;
  if (ec && ec != beast_http::error::need_more) return fault_of(ec);
  if (!parser.is_header_done()) return {400, "the message is malformed"};
  return {};
}

bool valid_host(std::string_view host) {
  return !host.empty() && std::all_of(host.begin(), host.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::strchr("-._~:[]!$&'()*+;=%", c) != nullptr;
  });
}

// RFC 9112, 3.2: the four forms of a target. Leaves origin-form (or "*" for OPTIONS) behind.
ParseFault settle_target(RequestHead& head) {
  if (head.method == "CONNECT") return {501, "CONNECT is not supported: this is a reverse proxy"};
  if (head.target.find('#') != std::string::npos) return {400, "the request target holds a fragment"};
  if (head.target.front() == '/') return {};
  if (head.target == "*") {
    if (head.method == "OPTIONS") return {};
    return {400, "the target * goes with OPTIONS alone"};
  }
  if (!starts_with_ignoring_case(head.target, "http://") && !starts_with_ignoring_case(head.target, "https://"))
    return {400, "the request target is neither a path nor an http URL"};
  const auto url = split_url(head.target);
  if (!url || url->userinfo || !valid_host(url->hosts)) return {400, "the host in the request target is not valid"};
  Headers headers;
  headers.add("Host", url->hosts);
  append(headers, fields_but(head.headers, "Host"));
  head.headers = std::move(headers);
  std::string target(url->target);
  if (!target.starts_with('/')) target.insert(0, 1, '/');
  head.target = std::move(target);
  return {};
}

ParseFault check_request(RequestHead& head) {
  // Methods compare with case, but many servers take `post` for POST, past the routes that name it.
  if (std::any_of(head.method.begin(), head.method.end(), [](char c) { return c >= 'a' && c <= 'z'; })) {
    return {400, "methods are written in capitals, as in POST"};
  }
  const std::size_t hosts = head.headers.count("Host");
  if (hosts > 1) return {400, "Host is sent more than once"};
  if (hosts == 0 && head.version >= 11) return {400, "Host is missing"};
  if (hosts == 1 && !head.headers.get("Host")->empty() && !valid_host(*head.headers.get("Host"))) {
    return {400, "Host is not valid"};
  }
  // Fields named in Connection are removed when forwarding. A sender must not get fields removed that give the message
  // its meaning.
  if (head.headers.has("Connection")) {
    std::size_t options = 0;
    for_each_item(head.headers, "Connection", [&](std::string_view) { ++options; });
    if (options > kConnectionOptionsMax) return {400, "Connection has more than 64 options"};
    for (const std::string_view vital : {"Host", "Authorization", "Cookie", "Content-Type", "Content-Length"}) {
      if (lists(head.headers, "Connection", vital)) return {400, "Connection names a field that is not its own"};
    }
  }
  if (head.framing == Framing::chunked && head.version < 11)
    return {400, "Transfer-Encoding does not exist in HTTP/1.0"};
  if (const auto expect = head.headers.get("Expect"); expect && head.version >= 11) {
    if (!equal_ignoring_case(*expect, "100-continue")) return {417, "the only expectation understood is 100-continue"};
    head.expects_continue = head.framing != Framing::none;
  }
  return settle_target(head);
}

// "HTTP/1.1 201" and nothing else: the blank in front of a reason that is not there is missing (RFC 9112, 4), as many
// servers do it.
constexpr std::size_t kStatusEnd = std::string_view("HTTP/1.1 201").size();

bool lacks_blank_behind_status(std::string_view head) {
  return head.starts_with("HTTP/") && head.find("\r\n") == kStatusEnd;
}

// RFC 9112, 5.1 and 5.2, for responses: blanks before a colon are removed, folds become a space.
std::string mend_response_head(std::string_view head) {
  std::string mended;
  mended.reserve(head.size());
  for (std::size_t at = 0; at < head.size();) {
    const bool first_line = at == 0;
    const std::size_t end = std::min(head.find("\r\n", at), head.size());
    std::string_view line = head.substr(at, end - at);
    at = std::min(end + 2, head.size());
    if (!first_line && !line.empty() && is_blank(line.front())) {
      mended.resize(mended.size() - 2);
      while (!line.empty() && is_blank(line.front())) line.remove_prefix(1);
      mended.append(" ").append(line);
    } else {
      const std::size_t colon = first_line ? line.size() : std::min(line.find(':'), line.size());
      std::string_view name = line.substr(0, colon);
      while (colon < line.size() && !name.empty() && is_blank(name.back())) name.remove_suffix(1);
      mended.append(name).append(line.substr(colon));
    }
    mended.append("\r\n");
  }
  return mended;
}

} // namespace

std::optional<std::size_t> head_length(std::string_view bytes) {
  const std::size_t end = bytes.find("\r\n\r\n");
  if (end == std::string_view::npos) return std::nullopt;
  return end + 4;
}

std::optional<int> final_status(std::string_view head) {
  if (!head.starts_with("HTTP/1.1 ") && !head.starts_with("HTTP/1.0 ")) return std::nullopt;
  const std::string_view rest = head.substr(kStatusEnd - 3);
  if (rest.size() < 4 || std::string_view(" \r\n").find(rest[3]) == std::string_view::npos) return std::nullopt;
  int status = 0;
  for (const char digit : rest.substr(0, 3)) {
    if (digit < '0' || digit > '9') return std::nullopt;
    status = status * 10 + (digit - '0');
  }
  if (status < 200 || status > 599) return std::nullopt;
  return status;
}

static ParseFault read_head(MessageCollector<RequestHead>& parser, std::string_view text, RequestHead& out) {
  if (const ParseFault fault = feed_head(parser, text, odd_lines(text))) return fault;
  out = std::move(parser.head);
  const auto length = parser.content_length_remaining();
  if (length && out.framing == Framing::none && *length > 0) {
    out.framing = Framing::length;
    out.content_length = *length;
  }
  out.keep_alive = wants_keep_alive(out.headers, out.version);
  return check_request(out);
}

static ParseFault read_head(MessageCollector<ResponseHead>& parser, std::string_view text, ResponseHead& out) {
  OddLines odd = odd_lines(text);
  std::string mended;
  if (lacks_blank_behind_status(text)) {
    mended.assign(text).insert(kStatusEnd, 1, ' ');
    text = mended;
  }
  if (odd.folded || odd.blank_before_colon) {
    mended = mend_response_head(text);
    text = mended;
    odd = odd_lines(text);
  }
  if (const ParseFault fault = feed_head(parser, text, odd)) return fault;
  ResponseHead& head = parser.head;
  if (head.status < 100 || head.status > 599) return {502, "the status is not between 100 and 599"};
  out = std::move(head);
  out.keep_alive = wants_keep_alive(out.headers, out.version);
  if (out.framing == Framing::chunked && out.version < 11) return {502, "Transfer-Encoding does not exist in HTTP/1.0"};
  if (parser.is_done()) {
    out.framing = Framing::none;
  } else if (const auto length = parser.content_length_remaining(); length && out.framing == Framing::none) {
    out.framing = Framing::length;
    out.content_length = *length;
  } else if (out.framing == Framing::none) {
    out.framing = Framing::until_close;
    out.keep_alive = false;
  }
  return {};
}

template <class Head>
MessageParser<Head>::MessageParser(HeadOnly head_only) : head_only_(head_only) {}
template <class Head>
MessageParser<Head>::~MessageParser() = default;
template <class Head>
MessageParser<Head>::MessageParser(MessageParser&&) noexcept = default;

template <class Head>
ParseFault MessageParser<Head>::parse_head(std::string_view head, Head& out) {
  out = {};
  if (head_only_ == HeadOnly::no && parse_plain_head(head, out)) {
    body_left_ = out.content_length;
    if constexpr (std::is_same_v<Head, RequestHead>) return check_request(out);
    return {};
  }
  out = {};
  collector_ = std::make_unique<MessageCollector<Head>>();
  if (head_only_ == HeadOnly::yes) collector_->skip(true);
  return read_head(*collector_, head, out);
}

template <class Head>
ParseFault MessageParser<Head>::parse_body(std::string_view bytes, BodyPiece& out) {
  if (!collector_) {
    out.bytes = bytes.substr(0, body_left_);
    out.consumed = out.bytes.size();
    body_left_ -= out.consumed;
    return {};
  }
  collector_->piece = {};
  error_code ec;
  out.consumed = collector_->put({bytes.data(), bytes.size()}, ec);
  out.bytes = collector_->piece;
  if (collector_->fault) return collector_->fault;
  return ec && ec != beast_http::error::need_more ? fault_of(ec) : ParseFault{};
}

template <class Head>
ParseFault MessageParser<Head>::end_of_input() {
  error_code ec;
  if (collector_) collector_->put_eof(ec);
  if (ec || body_left_ > 0) return {502, "the connection ended in the middle of the response"};
  return {};
}

template <class Head>
bool MessageParser<Head>::done() const {
  return collector_ ? collector_->is_done() : body_left_ == 0;
}

template class MessageParser<RequestHead>;
template class MessageParser<ResponseHead>;

} // namespace oncekey
