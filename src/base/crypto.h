// crypto: hashes and random bytes, over OpenSSL.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace oncekey {

using Secret = std::array<std::uint8_t, 32>;
using HashBytes = std::array<std::uint8_t, 32>;

// HMAC-SHA-256 over a sequence of parts. Every part is hashed with its length in front, so that ("ab", "c") and
// ("a", "bc") never meet. Safe to use from several threads at once.
class KeyedHash {
 public:
  explicit KeyedHash(const Secret& secret);
  ~KeyedHash();
  KeyedHash(const KeyedHash&) = delete;
  KeyedHash& operator=(const KeyedHash&) = delete;

  HashBytes of(std::span<const std::string_view> parts) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// SHA-256 of a stream of pieces.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  void update(std::string_view bytes);
  HashBytes finish(); // once

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// From the operating system's generator; ends the process if there is none, since a weak secret is worse than no start.
void fill_random(std::span<std::uint8_t> out);
std::uint64_t random_u64();

// Padded base64, the usual alphabet.
std::string base64_encode(std::string_view bytes);

// Unpadded base64url, as in JWTs. Nothing on any character outside the alphabet.
bool base64url_decode(std::string_view text, std::string& out);

// Compares in time that depends on the lengths alone.
bool equal_in_constant_time(std::string_view a, std::string_view b);

} // namespace oncekey
