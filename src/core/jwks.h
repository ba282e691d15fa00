// jwks: the keys of a token issuer, as a JSON Web Key Set (RFC 7517).
#pragma once

#include "base/verification_key.h"

#include <oncekey/headers.h>
#include <oncekey/result.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

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

} // namespace oncekey
