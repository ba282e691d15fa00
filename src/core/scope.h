// scope: whose key it is.
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
