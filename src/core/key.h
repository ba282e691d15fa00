// key: reads the key that a client sent.
//
// An unusable key is always refused and never ignored: ignoring it, as RFC 9651 would have a recipient do with a field
// that does not parse, would run the request without the protection its sender asked for.
#pragma once

#include "core/policy.h"
#include "core/refusal.h"

#include <oncekey/headers.h>

#include <cstddef>
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

// Where a request's key is looked for: in the order the policy names. A key header must be valid wherever it stands in
// that order: a request with a malformed or repeated key header is refused by its head alone. The body is looked at
// only for the sources that stand before the head's key.
struct NoKey {};
struct KeyOfFingerprint {};
struct ClientKey {
  std::string text;
};
using FoundKey = std::variant<NoKey, KeyOfFingerprint, ClientKey, Refusal>;

// What the head tells about the key.
struct HeadKey {
  FoundKey key = NoKey{};
  // The sources of Policy::key_from before the one that `key` came from, all of them if it came from none. Some may be
  // in the body: a key found there comes first.
  std::size_t sources_before = 0;
  bool maybe_in_body = false; // one of those is in the body, as far as the head tells
};
std::variant<HeadKey, Refusal> key_in_head(const Policy& policy, const Headers& headers);

// The key, once the body is there too.
FoundKey find_key(const Policy& policy, const Headers& headers, HeadKey head, std::string_view body);

// An RFC 9651 Item whose value is a String, parameters checked and dropped. Nothing if it is anything else.
std::optional<std::string> parse_structured_string(std::string_view field);

} // namespace oncekey
