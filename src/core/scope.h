// scope: which account a key belongs to.
//
// Two accounts may use the same key without ever learning of each other, so every record is named by a keyed hash over
// the account's principal and the key. A request with a key and no principal is refused: a shared default would hand
// one tenant's answers to another.
#pragma once

#include "base/crypto.h"
#include "core/admit.h"
#include "core/caller.h"
#include "core/policy.h"
#include "core/principal.h"
#include "core/refusal.h"

#include <oncekey/record.h>

#include <optional>
#include <string_view>
#include <variant>

namespace oncekey {

// The account of a request, or the refusal:
//   principal_missing   a required part is absent or empty, or a source occurs twice (the upstream might use the other)
//   the judge's own     the token is not valid
//   token_invalid       the token lacks a required claim
// Unless the policy says jwt_unverified, tokens need a judge.
std::variant<Principal, Refusal> find_principal(const Policy& policy, const Headers& headers,
                                                const Caller& caller = {});

// Whether the account can be charged: not where it is read from tokens that are not verified, which anyone can make up.
bool believes_callers(const Policy& policy);

// Nothing for the scope `global`, under which all callers are one account.
std::optional<AccountId> account_of(const Principal& principal, std::uint64_t seed);

enum class KeyKind { client, fingerprint };

// The record a request belongs to. `key` is the client's, or the bytes of the fingerprint.
RecordId record_id(const Policy& policy, const Principal& principal, const RequestView& request, KeyKind kind,
                   std::string_view key, const KeyedHash& hash);

} // namespace oncekey
