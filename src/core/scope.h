// scope: whose key it is.
//
// Two accounts may use the same key without ever learning of each other, so every record is named by a keyed hash over
// the account's principal and the key. A request with a key and no principal is refused: a shared default would hand
// one tenant's answers to another.
#pragma once

#include "base/crypto.h"
#include "core/admit.h"
#include "core/refusal.h"

#include <oncekey/policy.h>
#include <oncekey/record.h>

#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace oncekey {

struct PrincipalPart {
  std::string_view kind; // of its source; a claim that is a number has its own, so that 7 and "7" are two accounts
  const ScopeSource* source;
  bool present;
  std::string_view value;
};

// Views into the policy and the request it was found in.
struct Principal {
  std::vector<PrincipalPart> parts;
  std::list<std::string> decoded; // claims, which stand in no header as they are; a list keeps them in place
};

// Refused with principal_missing when a required part is absent or empty, a token cannot be read, or a source occurs
// twice, where the upstream might believe the other one.
std::variant<Principal, Refusal> find_principal(const Policy& policy, const Headers& headers);

// Nothing for `global`, where all callers are one account.
std::optional<AccountId> account_of(const Principal& principal, std::uint64_t seed);

enum class KeyKind { client, fingerprint };

// The record a request belongs to. `key` is the client's, or the bytes of the fingerprint.
RecordId record_id(const Policy& policy, const Principal& principal, const RequestView& request, KeyKind kind,
                   std::string_view key, const KeyedHash& hash);

} // namespace oncekey
