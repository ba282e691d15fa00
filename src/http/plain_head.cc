#include "http/plain_head.h"

#include <array>

namespace oncekey {
namespace {

// More would be unusual.
constexpr std::size_t kPlainFieldsMax = 64;
// As many digits fit into 64 bits.
constexpr std::size_t kLengthDigitsMax = 18;

using Characters = std::array<bool, 256>;

// A printable character of ASCII, or a blank.
constexpr Characters kPlain = [] {
  Characters plain{};
  for (std::size_t c = 0x20; c < 0x7f; ++c) plain[c] = true;
  return plain;
}();

// RFC 9110, 5.6.2.
constexpr Characters kToken = [] {
  Characters token{};
  for (const char c : std::string_view("!#$%&'*+-.^_`|~")) token[static_cast<unsigned char>(c)] = true;
  for (std::size_t c = '0'; c <= '9'; ++c) token[c] = true;
  for (std::size_t c = 'a'; c <= 'z'; ++c) token[c] = token[c - 'a' + 'A'] = true;
  return token;
}();

bool is_in(const Characters& characters, char c) { return characters[static_cast<unsigned char>(c)]; }

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// What the fields say of their message.
struct Said {
  std::optional<std::uint64_t> length;
  bool connection = false;
  bool close = false;
  bool keep_alive = false;
};

bool read_length(std::string_view value, Said& said) {
  if (said.length || value.size() > kLengthDigitsMax) return false;
  std::uint64_t length = 0;
  for (const char c : value) {
    if (!is_digit(c)) return false;
    length = 10 * length + static_cast<std::uint64_t>(c - '0');
  }
  said.length = length;
  return true;
}

bool read_connection(std::string_view value, Said& said) {
  if (std::exchange(said.connection, true)) return false;
  said.close = equal_ignoring_case(value, "close");
  said.keep_alive = equal_ignoring_case(value, "keep-alive");
  return said.close || said.keep_alive;
}

// Takes note of a field that concerns the framing or the connection. False if Beast has to judge it.
bool read_field(std::string_view name, std::string_view value, Said& said) {
  switch (name.size()) {
    case std::string_view("Upgrade").size():
      return !equal_ignoring_case(name, "Upgrade");
    case std::string_view("Connection").size():
      return !equal_ignoring_case(name, "Connection") || read_connection(value, said);
    case std::string_view("Content-Length").size():
      return !equal_ignoring_case(name, "Content-Length") || read_length(value, said);
    case std::string_view("Proxy-Connection").size():
      return !equal_ignoring_case(name, "Proxy-Connection");
    case std::string_view("Transfer-Encoding").size():
      return !equal_ignoring_case(name, "Transfer-Encoding");
    default:
      return true;
  }
}

// From behind the first line to the end. Neither table has CR, and the text ends in CR LF CR LF: no scan leaves it.
bool read_fields(std::string_view text, MessageHead& out, Said& said) {
  out.headers.reserve(text.size(), text.size() / 16);
  const char* at = text.data();
  while (*at != '\r') {
    const char* const name = at;
    while (is_in(kToken, *at)) ++at;
    const auto name_length = static_cast<std::size_t>(at - name);
    if (name_length == 0 || at[0] != ':' || at[1] != ' ') return false;
    const char* const value = at += 2;
    while (is_in(kPlain, *at)) ++at;
    if (at == value || *value == ' ' || at[-1] == ' ' || at[0] != '\r' || at[1] != '\n') return false;
    if (!read_field({name, name_length}, {value, static_cast<std::size_t>(at - value)}, said)) return false;
    at += 2;
    out.headers.add_line({name, static_cast<std::size_t>(at - name)}, name_length);
  }
  out.keep_alive = !said.close && (out.version >= 11 || said.keep_alive);
  return at + 2 == text.data() + text.size() && out.headers.size() <= kPlainFieldsMax;
}

// 11 or 10; 0 for anything else.
int version_of(std::string_view text) {
  if (text == "HTTP/1.1") return 11;
  return text == "HTTP/1.0" ? 10 : 0;
}

} // namespace

bool parse_plain_head(std::string_view head, RequestHead& out) {
  if (!head.ends_with("\r\n\r\n")) return false;
  const char* at = head.data();
  while (is_in(kToken, *at)) ++at;
  const char* const method_end = at;
  if (method_end == head.data() || *at != ' ') return false;
  const char* const target = ++at;
  while (*at != ' ' && is_in(kPlain, *at)) ++at;
  const auto target_length = static_cast<std::size_t>(at - target);
  if (target_length == 0 || *at != ' ') return false;
  const std::string_view rest = head.substr(static_cast<std::size_t>(++at - head.data()));
  constexpr std::size_t kVersionBytes = 8;
  out.version = version_of(rest.substr(0, kVersionBytes));
  if (out.version == 0 || rest.substr(kVersionBytes, 2) != "\r\n") return false;
  Said said;
  if (!read_fields(rest.substr(kVersionBytes + 2), out, said)) return false;
  out.method.assign(head.data(), method_end);
  out.target.assign(target, target_length);
  out.content_length = said.length.value_or(0);
  out.framing = out.content_length > 0 ? Framing::length : Framing::none;
  return true;
}

bool parse_plain_head(std::string_view head, ResponseHead& out) {
  constexpr std::string_view kLeast = "HTTP/1.1 200 \r\n\r\n";
  if (head.size() < kLeast.size() || !head.ends_with("\r\n\r\n")) return false;
  out.version = version_of(head.substr(0, 8));
  const char* at = head.data() + 8;
  if (out.version == 0 || at[0] != ' ' || !is_digit(at[1]) || !is_digit(at[2]) || !is_digit(at[3]) || at[4] != ' ')
    return false;
  out.status = 100 * (at[1] - '0') + 10 * (at[2] - '0') + (at[3] - '0');
  if (out.status < 200 || out.status > 599 || status_forbids_body(out.status)) return false;
  const char* const reason = at += 5;
  while (is_in(kPlain, *at)) ++at;
  if (at[0] != '\r' || at[1] != '\n') return false;
  out.reason.assign(reason, at);
  Said said;
  if (!read_fields(head.substr(static_cast<std::size_t>(at + 2 - head.data())), out, said) || !said.length)
    return false;
  out.content_length = *said.length;
  out.framing = out.content_length > 0 ? Framing::length : Framing::none;
  return true;
}

} // namespace oncekey
