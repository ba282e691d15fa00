// scope: whose key it is.
//
// Two accounts may use the same key without ever learning of each other, so every record is named by a keyed hash over
// the account's principal and the key. A request with a key and no principal is refused: a shared default would hand
// one tenant's answers to another.
#pragma once

#include "base/crypto.h"
#include "core/admit.h"
#include "core/caller.h"
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
  // Of its source. A claim that is a number has its own, so that 7 and "7" are two accounts; so have the issuer of a
  // token or certificate, which is a part beside the name it gave, and an account of the `accounts` file.
  std::string_view kind;
  const ScopeSource* source;
  bool present;
  std::string_view value;
};

// Views into the policy and the request it was found in.
struct Principal {
  std::vector<PrincipalPart> parts;
  std::list<std::string> decoded; // what stands in no header as it is; a list keeps it in place
};

// Refused with principal_missing when a required part is absent or empty, or a source occurs twice, where the upstream
// might believe the other one; with what the caller's judge says of a token that does not hold, and with token_invalid
// when it lacks a required claim. Where the policy does not call tokens unverified, they need a judge.
std::variant<Principal, Refusal> find_principal(const Policy& policy, const Headers& headers,
                                                const Caller& caller = {});

// Whether the account was proven, or could be anyone's word: limits must not be charged to an account on that.
bool believes_callers(const Policy& policy);

// Nothing for `global`, where all callers are one account.
std::optional<AccountId> account_of(const Principal& principal, std::uint64_t seed);

enum class KeyKind { client, fingerprint };

// The record a request belongs to. `key` is the client's, or the bytes of the fingerprint.
RecordId record_id(const Policy& policy, const Principal& principal, const RequestView& request, KeyKind kind,
                   std::string_view key, const KeyedHash& hash);

} // namespace oncekey
