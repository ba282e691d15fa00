#include "core/key.h"

#include <fmt/format.h>

namespace oncekey {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

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

} // namespace oncekey
