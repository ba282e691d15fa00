// key: from what a client sent to the key that is compared.
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

// The limit every vendor that publishes one stays within.
inline constexpr std::size_t kKeyLengthMax = 255;

// Why a text is no key, as a sentence without a full stop. Never holds the text itself.
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
