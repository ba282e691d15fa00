#include "core/key.h"

#include "base/ascii.h"

#include <fmt/format.h>

namespace oncekey {
namespace {

enum class Spaces { allowed, refused };

ParsedKey checked(std::string key, Spaces spaces) {
  if (key.empty()) return BadKey{"the key is empty"};
  if (key.size() > kKeyLengthMax) {
    return BadKey{fmt::format("the key has {} characters, {} are allowed", key.size(), kKeyLengthMax)};
  }
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == ' ' && spaces == Spaces::allowed) continue;
    if (byte <= ' ' || byte >= 0x7f) {
      return BadKey{"the key holds something other than visible ASCII characters"};
    }
  }
  return key;
}

// The part of RFC 9651 (section 4.2) that a key needs: an Item with a String, and parameters of any type behind it.
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_alpha(char c) { return is_lower(c) || (c >= 'A' && c <= 'Z'); }
bool is_one_of(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }
bool is_token_char(char c) { return is_alpha(c) || is_digit(c) || is_one_of(c, "!#$%&'*+-.^_`|~:/"); }

class StructuredStringReader {
 public:
  explicit StructuredStringReader(std::string_view text) : rest_(text) {}

  bool at_end() const { return rest_.empty(); }
  void skip_spaces() {
    while (take(' ')) {
    }
  }
  bool take(char wanted) {
    if (!rest_.starts_with(wanted)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool string(std::string& out) {
    if (!take('"')) return false;
    while (!rest_.empty()) {
      const char c = next();
      if (c == '"') return true;
      if (c == '\\') {
        if (rest_.empty() || !is_one_of(rest_.front(), "\"\\")) return false;
        out.push_back(next());
      } else if (c < 0x20 || c > 0x7e) {
        return false;
      } else {
        out.push_back(c);
      }
    }
    return false;
  }

  bool parameters() {
    while (take(';')) {
      skip_spaces();
      if (rest_.empty() || !(is_lower(rest_.front()) || rest_.front() == '*')) return false;
      while (!rest_.empty() &&
             (is_lower(rest_.front()) || is_digit(rest_.front()) || is_one_of(rest_.front(), "_-.*"))) {
        rest_.remove_prefix(1);
      }
      if (take('=') && !bare_item()) return false;
    }
    return true;
  }

 private:
  char next() {
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }

  bool bare_item() {
    if (rest_.empty()) return false;
    const char first = rest_.front();
    std::string ignored;
    if (first == '"') return string(ignored);
    if (first == '-' || is_digit(first)) return number();
    if (first == '*' || is_alpha(first)) return token();
    if (take('?')) return take('0') || take('1');
    if (take(':')) return byte_sequence();
    if (take('@')) return date();
    if (take('%')) return display_string();
    return false;
  }

  // How many digits were taken.
  std::size_t digits() {
    std::size_t count = 0;
    for (; !rest_.empty() && is_digit(rest_.front()); ++count) rest_.remove_prefix(1);
    return count;
  }

  bool number() {
    take('-');
    const std::size_t whole = digits();
    if (whole == 0 || whole > 15) return false;
    if (!take('.')) return true;
    const std::size_t fraction = digits();
    return whole <= 12 && fraction >= 1 && fraction <= 3;
  }

  bool date() {
    take('-');
    const std::size_t whole = digits();
    return whole >= 1 && whole <= 15 && !rest_.starts_with('.');
  }

  bool token() {
    while (!rest_.empty() && is_token_char(rest_.front())) rest_.remove_prefix(1);
    return true;
  }

  bool byte_sequence() {
    while (!rest_.empty() && (is_alpha(rest_.front()) || is_digit(rest_.front()) || is_one_of(rest_.front(), "+/="))) {
      rest_.remove_prefix(1);
    }
    return take(':');
  }

  // RFC 9651 asks for UTF-8 in the decoded text. Parameters are dropped here, so that this is not checked.
  bool display_string() {
    if (!take('"')) return false;
    while (!rest_.empty()) {
      const char c = next();
      if (c == '"') return true;
      if (c < 0x20 || c > 0x7e) return false;
      if (c != '%') continue;
      for (int i = 0; i < 2; ++i) {
        if (rest_.empty() || !(is_digit(rest_.front()) || (rest_.front() >= 'a' && rest_.front() <= 'f'))) return false;
        rest_.remove_prefix(1);
      }
    }
    return false;
  }

  std::string_view rest_;
};

} // namespace

ParsedKey parse_key_header(KeySyntax syntax, bool strict, std::string_view value) {
  value = trimmed(value);
  switch (syntax) {
    case KeySyntax::raw:
      return checked(std::string(value), Spaces::refused);
    case KeySyntax::visible_ascii:
      if (value.size() >= 2 && value.front() == '"' && value.back() == '"') {
        value = value.substr(1, value.size() - 2);
      }
      return checked(std::string(value), Spaces::refused);
    case KeySyntax::structured_string:
      break;
  }
  // A bare UUID is neither a String nor a Token of RFC 9651, so that a lenient policy accepts any visible ASCII without
  // quotes. A value that starts with a quote must be a String: half a String is a bug of the client, not another key.
  if (!value.starts_with('"') && !strict) return checked(std::string(value), Spaces::refused);
  if (value.empty()) return BadKey{"the key is empty"};
  auto key = parse_structured_string(value);
  if (!key) return BadKey{"the key is not a structured-field string: write it in double quotes, as RFC 9651 describes"};
  return checked(*std::move(key), Spaces::allowed);
}

ParsedKey parse_plain_key(std::string_view text) { return checked(std::string(text), Spaces::refused); }

std::optional<std::string> parse_structured_string(std::string_view field) {
  StructuredStringReader reader(field);
  std::string key;
  reader.skip_spaces();
  if (!reader.string(key) || !reader.parameters()) return std::nullopt;
  reader.skip_spaces();
  if (!reader.at_end()) return std::nullopt;
  return key;
}

} // namespace oncekey
