// redaction: what is kept and shown in place of a key or path on routes with `redact`.
//
// A keyed hash with the store's secret: the same text has the same form, so that an operator who knows a key finds its
// record. Without the secret the form tells nothing. docs/SECURITY.md says who has the secret.
#pragma once

#include "base/crypto.h"

#include <array>
#include <string>
#include <string_view>

namespace oncekey {

inline constexpr std::string_view kRedacted = "redacted:";

inline std::string redacted(const KeyedHash& hash, std::string_view text) {
  if (text.empty()) return {};
  const std::array<std::string_view, 2> parts{"oncekey: redacted text", text};
  return std::string(kRedacted) + hex_encode(hash.of(parts)).substr(0, 16);
}

} // namespace oncekey
