// OpenSSL would rather have its hashes looked up by name at run time; see KeyedHash for why that is too slow here.
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/crypto.h"

#include <oncekey/check.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <bit>

namespace oncekey {
namespace {

// One of HMAC's two keyed starting points: SHA-256 after the block that the key and a pad make.
SHA256_CTX start_with(const Secret& secret, std::uint8_t pad) {
  std::array<std::uint8_t, SHA256_CBLOCK> block;
  block.fill(pad);
  for (std::size_t i = 0; i < secret.size(); ++i) block[i] = static_cast<std::uint8_t>(secret[i] ^ pad);
  SHA256_CTX start;
  ONCEKEY_CHECK(SHA256_Init(&start) == 1 && SHA256_Update(&start, block.data(), block.size()) == 1,
                "OpenSSL has SHA-256");
  return start;
}

} // namespace

// RFC 2104. Both starting points are kept, so that a hash begins with a copy of a few words and neither allocates nor
// locks; OpenSSL's own HMAC spends more time around a small message than on it.
struct KeyedHash::Impl {
  SHA256_CTX inner;
  SHA256_CTX outer;
};

KeyedHash::KeyedHash(const Secret& secret)
    : impl_(std::make_unique<Impl>(Impl{start_with(secret, 0x36), start_with(secret, 0x5c)})) {}
KeyedHash::~KeyedHash() = default;

HashBytes KeyedHash::of(std::span<const std::string_view> parts) const {
  static_assert(std::endian::native == std::endian::little, "lengths are hashed least significant byte first");
  HashBytes hash{};
  SHA256_CTX inner = impl_->inner;
  bool good = true;
  for (const std::string_view part : parts) {
    const std::uint64_t length = part.size();
    good = good && SHA256_Update(&inner, &length, sizeof length) == 1 &&
           SHA256_Update(&inner, part.data(), part.size()) == 1;
  }
  SHA256_CTX outer = impl_->outer;
  good = good && SHA256_Final(hash.data(), &inner) == 1 && SHA256_Update(&outer, hash.data(), hash.size()) == 1 &&
         SHA256_Final(hash.data(), &outer) == 1;
  ONCEKEY_CHECK(good, "HMAC-SHA-256 does not fail on memory");
  return hash;
}

struct Sha256::Impl {
  EVP_MD_CTX* ctx = EVP_MD_CTX_new();
  ~Impl() { EVP_MD_CTX_free(ctx); }
};

Sha256::Sha256() : impl_(std::make_unique<Impl>()) {
  ONCEKEY_CHECK(EVP_DigestInit_ex(impl_->ctx, EVP_sha256(), nullptr) == 1, "OpenSSL has SHA-256");
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::string_view bytes) {
  ONCEKEY_CHECK(EVP_DigestUpdate(impl_->ctx, bytes.data(), bytes.size()) == 1, "SHA-256 does not fail on memory");
}

HashBytes Sha256::finish() {
  HashBytes out{};
  ONCEKEY_CHECK(EVP_DigestFinal_ex(impl_->ctx, out.data(), nullptr) == 1, "SHA-256 does not fail on memory");
  return out;
}

void fill_random(std::span<std::uint8_t> out) {
  ONCEKEY_CHECK(RAND_bytes(out.data(), static_cast<int>(out.size())) == 1, "the operating system gives random bytes");
}

std::uint64_t random_u64() {
  std::array<std::uint8_t, 8> bytes{};
  fill_random(bytes);
  std::uint64_t value = 0;
  for (const std::uint8_t byte : bytes) value = value << 8 | byte;
  return value;
}

std::string base64_encode(std::string_view bytes) {
  std::string out(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int written =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                      reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  out.resize(static_cast<std::size_t>(written));
  return out;
}

bool base64url_decode(std::string_view text, std::string& out) {
  const auto value_of = [](char c) -> int {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    if (c == '-') return 62;
    if (c == '_') return 63;
    return -1;
  };
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  if (text.size() % 4 == 1) return false;
  out.clear();
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int value = value_of(c);
    if (value < 0) return false;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out.push_back(static_cast<char>(bits >> count & 0xff));
    }
  }
  return true;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

} // namespace oncekey
