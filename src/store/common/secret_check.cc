#include "store/common/secret_check.h"

#include <array>
#include <cstring>

namespace oncekey {

HashBytes secret_check(const Secret& secret) {
  const std::array<std::string_view, 1> text{"oncekey: check value of the store's secret"};
  return KeyedHash(secret).of(text);
}

std::string secret_with_check(const Secret& secret) {
  const HashBytes check = secret_check(secret);
  std::string bytes(kSecretWithCheckBytes, '\0');
  std::memcpy(bytes.data(), secret.data(), secret.size());
  std::memcpy(bytes.data() + secret.size(), check.data(), check.size());
  return bytes;
}

std::optional<Secret> checked_secret(std::string_view bytes) {
  if (bytes.size() != kSecretWithCheckBytes) return std::nullopt;
  Secret secret{};
  std::memcpy(secret.data(), bytes.data(), secret.size());
  if (!equal_in_constant_time(secret_with_check(secret), bytes)) return std::nullopt;
  return secret;
}

} // namespace oncekey
