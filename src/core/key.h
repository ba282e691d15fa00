// key: reads the key that a client sent.
//
// An unusable key is always refused and never ignored: ignoring it, as RFC 9651 would have a recipient do with a field
// that does not parse, would run the request without the protection its sender asked for.
#pragma once

#include "core/policy.h"

#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace oncekey {

// Every API vendor that publishes a limit has this one or a lower one.
inline constexpr std::size_t kKeyLengthMax = 255;

// Why a text cannot be a key: a sentence without a full stop, which never holds the text itself.
struct BadKey {
  std::string why;
};
using ParsedKey = std::variant<std::string, BadKey>;

// The value of a key header, by the policy's syntax.
ParsedKey parse_key_header(KeySyntax syntax, bool strict, std::string_view value);

// A key out of a body: 1 to 255 visible ASCII characters, as they are.
ParsedKey parse_plain_key(std::string_view text);

// An RFC 9651 Item whose value is a String, parameters checked and dropped. Nothing if it is anything else.
std::optional<std::string> parse_structured_string(std::string_view field);

} // namespace oncekey
