// jwt: verifies bearer tokens and reads the account's claims from them (RFC 7519, 7515).
//
// A replay never reaches the API that would verify the token, so that the gateway has to. A token is refused for
// anything that is not understood: an algorithm outside the five supported ones, a key of another kind than the
// algorithm's, `crit`, a member that occurs twice, base64url with a second spelling. The payload is not read before the
// signature has been verified.
#pragma once

#include "base/verification_key.h"
#include "core/policy.h"

#include <oncekey/headers.h>
#include <oncekey/result.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace oncekey {

// The keys of a token issuer, as a JSON Web Key Set (RFC 7517).
struct Jwk {
  std::string kid;                       // empty: it has none
  std::optional<SignatureScheme> scheme; // of `alg`: the only one it may be used for
  VerificationKey key;

  bool fits(SignatureScheme wanted) const { return key.fits(wanted) && (!scheme || *scheme == wanted); }
};

struct JwkSet {
  std::vector<Jwk> keys;
  // Keys that were meant for signatures and cannot be used: weak, broken, or a secret in a public place. One sentence
  // each, for the log. Keys for other purposes and of other algorithms are left out without a word.
  std::vector<std::string> rejected;
};

// Whether a set may hold symmetric secrets. A set that comes over the network can be read by others: a secret in it is
// not secret.
enum class SecretKeys { allowed, refused };

// A fault if the text is not a key set, or holds no key that can be used.
Result<JwkSet> parse_jwks(std::string_view json, SecretKeys secrets);

// How long a fetched set may be used before it is fetched again: what Cache-Control says, within a minute and a day; an
// hour where it says nothing.
std::chrono::seconds jwks_lifetime(const Headers& headers);

// "EdDSA", "ES256", "RS256", "PS256", "HS256"; nothing for others, of which `none` is one. "Ed25519" is the newer name
// for EdDSA with that curve (RFC 9864).
std::optional<SignatureScheme> scheme_of(std::string_view alg);

// How far the clock of an issuer may differ from the gateway's.
inline constexpr std::int64_t kTokenLeewaySeconds = 60;
// Tokens travel in a header; those of the talkative issuers have 4 KiB.
inline constexpr std::size_t kTokenBytesMax = 16u << 10;
// A token without `kid` is tried with at most this many keys of the set: each costs the gateway a verification, and the
// caller nothing.
inline constexpr std::size_t kKeysTriedMax = 8;

struct TokenClaim {
  std::string name;
  bool number = false; // 7 and "7" are two accounts
  std::string value;
};

struct VerifiedToken {
  std::optional<std::string> issuer;
  std::vector<TokenClaim> claims; // those asked for that it has, as text or whole number
  std::int64_t expires = 0;       // seconds since 1970

  const TokenClaim* find(std::string_view name) const;
};
struct RefusedToken {
  std::string_view reason; // a sentence for the client
};
// The token names a key that is not in the set: either the set is old, or the token is forged.
struct UnknownTokenKey {};
using TokenJudgement = std::variant<VerifiedToken, RefusedToken, UnknownTokenKey>;

// `claims` are the names of the claims that make the account. `now` in seconds since 1970.
TokenJudgement judge_token(std::string_view token, const JwkSet& keys, const TokenRules& rules,
                           const std::vector<std::string_view>& claims, std::int64_t now);

// The token behind `Bearer`; nothing if it is another scheme.
std::optional<std::string_view> bearer_token(std::string_view authorization);

// The claims of a token that something in front of the gateway has verified. Nothing if it cannot be read.
std::optional<VerifiedToken> read_unverified(std::string_view token, const std::vector<std::string_view>& claims);

} // namespace oncekey
