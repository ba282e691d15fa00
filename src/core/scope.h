// scope: which account a key belongs to, which record a request goes by, and the fingerprint of what it asks for.
//
// Two accounts may use the same key without ever learning of each other, so every record is named by a keyed hash over
// the account's principal and the key. A request with a key and no principal is refused: a shared default would hand
// one tenant's answers to another.
#pragma once

#include "base/crypto.h"
#include "core/admit.h"

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

// Appends four texts for each part of the account, to be hashed. Header names are in lower case, in `names`: they
// compare without case, and two gateways on one store may spell them differently.
void append_parts(const Principal& principal, std::vector<std::string_view>& parts, std::list<std::string>& names);

// What a record keeps of its account where its id cannot be made again. It has nothing of the key in it.
AccountTag account_tag(const Principal& principal, const KeyedHash& hash);

enum class KeyKind { client, fingerprint };

// The record a request belongs to. `key` is the client's, or the bytes of the fingerprint.
RecordId record_id(const Policy& policy, const Principal& principal, const RequestView& request, KeyKind kind,
                   std::string_view key, const KeyedHash& hash);

// What a request asks for, as a keyed hash.
//
// Method and target always count, so that under policies whose identity is the key alone the same key on another
// endpoint is a mismatch. So does the host name, unless the policy says that one API has several: virtual hosts share
// credentials, and the answer of one must not be replayed to another. Other headers never count unless the policy lists
// them: clients change them between tries. X-HTTP-Method-Override and its like are such headers.
//
// Under `canonical`, bodies that say they are JSON, a form or multipart/form-data are hashed in their canonical form;
// whatever cannot be read as what it says is hashed as bytes. The four kinds never meet.
Fingerprint fingerprint_of(const Policy& policy, const RequestView& request, std::string_view body,
                           const KeyedHash& hash);

// Whether a request names the host that the fingerprint was made under, or the policy does not care. The first eight
// bytes of a fingerprint tell.
bool same_host(const Policy& policy, const Headers& headers, const Fingerprint& fingerprint, const KeyedHash& hash);

} // namespace oncekey
