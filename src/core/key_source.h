// key_source: where a request's key is looked for, in the order the policy names.
//
// A key header must be valid wherever it stands in that order: a request with a malformed or repeated key header is
// refused by its head alone. The body is looked at only for the sources that stand before the head's key.
#pragma once

#include "core/policy.h"
#include "core/refusal.h"

#include <oncekey/headers.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>

namespace oncekey {

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

} // namespace oncekey
