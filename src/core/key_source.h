// key_source: where a request's key is looked for, in the order the policy names.
//
// Whatever a key header says must be right, wherever it stands in that order: a request with a broken or doubled key
// header is refused by its head alone. Only where no head can tell is the body asked.
#pragma once

#include "core/admit.h"
#include "core/refusal.h"

#include "core/policy.h"

#include <string>
#include <string_view>
#include <variant>

namespace oncekey {

enum class KeyInHead {
  absent,  // no key, and none can come out of the body
  present, // the request has one, or is given one by its fingerprint
  unknown, // it may be in the body
};
std::variant<KeyInHead, Refusal> look_for_key(const Policy& policy, const Headers& headers);

struct NoKey {};
struct KeyOfFingerprint {};
struct ClientKey {
  std::string text;
};
using FoundKey = std::variant<NoKey, KeyOfFingerprint, ClientKey, Refusal>;

FoundKey find_key(const Policy& policy, const Headers& headers, std::string_view body);

} // namespace oncekey
