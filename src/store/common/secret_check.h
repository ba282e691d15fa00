// secret_check: proof that a store's hashing secret is the one its records were made with.
//
// Ids and fingerprints are keyed with the secret. A store opened with another one looks empty: every retry would be
// executed again. So a store keeps a value that only the right secret leads to.
#pragma once

#include "base/crypto.h"

#include <optional>
#include <string>
#include <string_view>

namespace oncekey {

// Tells nothing about the secret.
HashBytes secret_check(const Secret& secret);

// How the shared stores keep it: the secret's 32 bytes and the 32 of its check value.
inline constexpr std::size_t kSecretWithCheckBytes = 64;
std::string secret_with_check(const Secret& secret);
// Nothing if the two do not fit each other.
std::optional<Secret> checked_secret(std::string_view bytes);

} // namespace oncekey
