// crypto: hashes, signatures and random bytes, over OpenSSL.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace oncekey {

using Secret = std::array<std::uint8_t, 32>;
using HashBytes = std::array<std::uint8_t, 32>;

// For std::unique_ptr of what OpenSSL allocates: its own function frees it.
template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};

// HMAC-SHA-256 over a sequence of parts. Every part is hashed with its length in front, so that ("ab", "c") and
// ("a", "bc") never meet. Safe to use from several threads at once.
class KeyedHash {
 public:
  explicit KeyedHash(const Secret& secret);
  ~KeyedHash();
  KeyedHash(const KeyedHash&) = delete;
  KeyedHash& operator=(const KeyedHash&) = delete;

  HashBytes of(std::span<const std::string_view> parts) const;
  // For hashes that need not withstand an attacker who sees them; made of the secret, so that it is the same for all
  // gateways on one store.
  std::uint64_t seed() const { return seed_; }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::uint64_t seed_ = 0;
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

// The SHA-256 of the pieces one after another, in hexadecimal.
std::string sha256_hex(std::initializer_list<std::string_view> pieces);

enum class HashAlgorithm { sha1, sha256, sha512 };

// HMAC under one secret, over the pieces one after another, as webhook providers and JWS define it. What follows from
// the secret alone is computed once. Hashes of Oncekey's own use KeyedHash, which keeps its parts apart. A value; safe
// to use from several threads at once.
class Hmac {
 public:
  Hmac(HashAlgorithm algorithm, std::string_view secret);
  // The raw bytes of the MAC.
  std::string of(std::span<const std::string_view> pieces) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

// AES-256-GCM. A nonce is used once with a key.
using GcmNonce = std::array<std::uint8_t, 12>;
inline constexpr std::size_t kGcmTagBytes = 16;
// Random. Not for secrets: each thread draws many at once, which is quicker than one by one.
GcmNonce random_nonce();
// Encrypts the bytes in place and appends the tag.
void gcm_seal(const Secret& key, const GcmNonce& nonce, std::string& bytes);
// The bytes as they were, out of ciphertext and tag. Nothing if any of these, the key or the nonce is another.
std::optional<std::string> gcm_open(const Secret& key, const GcmNonce& nonce, std::string_view sealed);

// From the operating system's generator; ends the process if there is none, since a weak secret is worse than no start.
void fill_random(std::span<std::uint8_t> out);
std::uint64_t random_u64();
// From 0 to less than 1.
double random_chance();

enum class UuidVersion : std::uint8_t { random = 4, custom_hash = 8 };
// "8e03978e-40d5-43e8-bc93-6894a57f9324" out of sixteen bytes, in which version and variant replace six bits.
std::string uuid_text(std::span<const std::uint8_t, 16> bytes, UuidVersion version);
// A new one, of random bytes.
std::string random_uuid();

// Lower case.
std::string hex_encode(std::string_view bytes);
inline std::string hex_encode(std::span<const std::uint8_t> bytes) {
  return hex_encode(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}
// Either case. Nothing for an odd length or any other character.
std::optional<std::string> hex_decode(std::string_view text);

// Padded base64, the usual alphabet.
std::string base64_encode(std::string_view bytes);
// Decodes strictly, so that no two texts mean the same bytes: nothing where padding is missing, a character is outside
// the alphabet, or the unused bits of the last character are set.
std::optional<std::string> base64_decode(std::string_view text);

// Unpadded base64url, as in JWTs. Nothing on any character outside the alphabet.
bool base64url_decode(std::string_view text, std::string& out);
// Decodes base64url strictly, so that no two texts mean the same bytes: no padding, and the unused bits of the last
// character are zero.
std::optional<std::string> base64url_decode_strictly(std::string_view text);

// Compares in time that depends on the lengths alone.
bool equal_in_constant_time(std::string_view a, std::string_view b);

} // namespace oncekey
