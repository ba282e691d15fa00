// jwt: verifies bearer tokens and reads the account's claims from them (RFC 7519, 7515).
//
// A replay never reaches the API that would verify the token, so that the gateway has to. A token is refused for
// anything that is not understood: an algorithm outside the five supported ones, a key of another kind than the
// algorithm's, `crit`, a member that occurs twice, base64url with a second spelling. The payload is not read before the
// signature has been verified.
#pragma once

#include "core/jwks.h"

#include "core/policy.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace oncekey {

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
