// secret_check: proof that a store's hashing secret is the one its records were made with.
//
// Ids and fingerprints are keyed with the secret. A store opened with another one looks empty: every retry would be
// executed again. So a store keeps a value that only the right secret leads to.
#pragma once

#include "base/crypto.h"

#include <cstring>

namespace oncekey {

// Tells nothing about the secret.
inline HashBytes secret_check(const Secret& secret) {
  const std::array<std::string_view, 1> text{"oncekey: check value of the store's secret"};
  return KeyedHash(secret).of(text);
}

// How the shared stores keep it: the secret's 32 bytes and the 32 of its check value.
inline constexpr std::size_t kSecretWithCheckBytes = 64;
inline std::string secret_with_check(const Secret& secret) {
  const HashBytes check = secret_check(secret);
  std::string bytes(secret.begin(), secret.end());
  return bytes.append(check.begin(), check.end());
}
// Nothing if the two do not fit each other.
inline std::optional<Secret> checked_secret(std::string_view bytes) {
  if (bytes.size() != kSecretWithCheckBytes) return std::nullopt;
  Secret secret{};
  std::memcpy(secret.data(), bytes.data(), secret.size());
  if (!equal_in_constant_time(secret_with_check(secret), bytes)) return std::nullopt;
  return secret;
}

} // namespace oncekey
