// OpenSSL would rather have its hashes looked up by name at run time; see KeyedHash for why that is too slow here.
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/crypto.h"

#include "base/enum_name.h"
#include "base/url.h"

#include <oncekey/check.h>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <bit>
#include <cstring>

namespace oncekey {
namespace {

// Finding the algorithm by its name takes a lock and a search; it is the same one every time.
EVP_MAC* hmac_algorithm() {
  static EVP_MAC* const kHmac = EVP_MAC_fetch(nullptr, OSSL_MAC_NAME_HMAC, nullptr);
  ONCEKEY_CHECK(kHmac != nullptr, "OpenSSL has HMAC");
  return kHmac;
}

const unsigned char* bytes_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

// The value of a character in the alphabet of base64 whose last two characters are given; -1 for a character outside
// it.
int base64_value(char c, char sixty_two, char sixty_three) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == sixty_two) return 62;
  if (c == sixty_three) return 63;
  return -1;
}

enum class SpareBits { ignored, must_be_zero };

// Decodes text without padding.
bool decode_base64(std::string_view text, char sixty_two, char sixty_three, SpareBits spare, std::string& out) {
  if (text.size() % 4 == 1) return false;
  out.clear();
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int value = base64_value(c, sixty_two, sixty_three);
    if (value < 0) return false;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out.push_back(static_cast<char>(bits >> count & 0xff));
    }
  }
  return spare == SpareBits::ignored || (bits & ((1u << count) - 1)) == 0;
}

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

using CipherContext = std::unique_ptr<EVP_CIPHER_CTX, Freed<EVP_CIPHER_CTX_free>>;

// One for each thread: making one costs more than to encrypt a small answer.
EVP_CIPHER_CTX* gcm_context() {
  thread_local const CipherContext context = [] {
    CipherContext made(EVP_CIPHER_CTX_new());
    ONCEKEY_CHECK(made && EVP_CipherInit_ex2(made.get(), EVP_aes_256_gcm(), nullptr, nullptr, 1, nullptr) == 1,
                  "OpenSSL has AES-256-GCM");
    return made;
  }();
  return context.get();
}

enum class Direction { open = 0, seal = 1 };

EVP_CIPHER_CTX* start_gcm(const Secret& key, const GcmNonce& nonce, Direction direction) {
  EVP_CIPHER_CTX* const context = gcm_context();
  ONCEKEY_CHECK(
      EVP_CipherInit_ex2(context, nullptr, key.data(), nonce.data(), static_cast<int>(direction), nullptr) == 1,
      "AES-256-GCM takes a key and a nonce");
  return context;
}

} // namespace

// RFC 2104. Both starting points are kept, so that a hash begins with a copy of a few words and neither allocates nor
// locks; OpenSSL's own HMAC spends more time around a small message than on it.
struct KeyedHash::Impl {
  SHA256_CTX inner;
  SHA256_CTX outer;
};

KeyedHash::KeyedHash(const Secret& secret)
    : impl_(std::make_unique<Impl>(Impl{start_with(secret, 0x36), start_with(secret, 0x5c)})) {
  const std::array<std::string_view, 1> what{"oncekey seed 1"};
  const HashBytes bytes = of(what);
  std::memcpy(&seed_, bytes.data(), sizeof seed_);
}
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

std::string sha256_hex(std::initializer_list<std::string_view> pieces) {
  Sha256 hash;
  for (const std::string_view piece : pieces) hash.update(piece);
  return hex_encode(hash.finish());
}

std::string hmac(HashAlgorithm algorithm, std::string_view secret, std::span<const std::string_view> pieces) {
  const std::unique_ptr<EVP_MAC_CTX, Freed<EVP_MAC_CTX_free>> ctx(EVP_MAC_CTX_new(hmac_algorithm()));
  std::string name(enum_name(algorithm)); // OpenSSL does not look at the case
  const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, name.data(), 0),
                               OSSL_PARAM_construct_end()};
  // OpenSSL takes a null key for "the one set before", also where the length is 0.
  const unsigned char* const key = secret.empty() ? bytes_of("") : bytes_of(secret);
  bool good = ctx && EVP_MAC_init(ctx.get(), key, secret.size(), params) == 1;
  ONCEKEY_CHECK(good, "OpenSSL has HMAC with this hash");
  for (const std::string_view piece : pieces) {
    good = good && EVP_MAC_update(ctx.get(), bytes_of(piece), piece.size()) == 1;
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> mac{};
  std::size_t written = 0;
  good = good && EVP_MAC_final(ctx.get(), mac.data(), &written, mac.size()) == 1;
  ONCEKEY_CHECK(good, "HMAC does not fail on memory");
  return std::string(reinterpret_cast<const char*>(mac.data()), written);
}

GcmNonce random_nonce() {
  constexpr std::size_t kDrawn = 128;
  thread_local std::array<GcmNonce, kDrawn> drawn;
  thread_local std::size_t left = 0;
  if (left == 0) {
    fill_random({drawn.front().data(), sizeof drawn});
    left = kDrawn;
  }
  return drawn[--left];
}

void gcm_seal(const Secret& key, const GcmNonce& nonce, std::string& bytes) {
  EVP_CIPHER_CTX* const context = start_gcm(key, nonce, Direction::seal);
  const std::size_t length = bytes.size();
  bytes.resize(length + kGcmTagBytes);
  auto* const at = reinterpret_cast<unsigned char*>(bytes.data());
  int written = 0;
  const bool good = EVP_CipherUpdate(context, at, &written, at, static_cast<int>(length)) == 1 &&
                    EVP_CipherFinal_ex(context, at + length, &written) == 1 &&
                    EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, kGcmTagBytes, at + length) == 1;
  ONCEKEY_CHECK(good, "AES-256-GCM does not fail on memory");
}

std::optional<std::string> gcm_open(const Secret& key, const GcmNonce& nonce, std::string_view sealed) {
  if (sealed.size() < kGcmTagBytes) return std::nullopt;
  EVP_CIPHER_CTX* const context = start_gcm(key, nonce, Direction::open);
  const std::size_t length = sealed.size() - kGcmTagBytes;
  std::string tag(sealed.substr(length));
  std::string bytes(length, '\0');
  auto* const at = reinterpret_cast<unsigned char*>(bytes.data());
  int written = 0;
  const bool good = EVP_CipherUpdate(context, at, &written, bytes_of(sealed), static_cast<int>(length)) == 1 &&
                    EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, kGcmTagBytes, tag.data()) == 1 &&
                    EVP_CipherFinal_ex(context, at + length, &written) == 1;
  if (!good) return std::nullopt;
  return bytes;
}

void fill_random(std::span<std::uint8_t> out) {
  ONCEKEY_CHECK(RAND_bytes(out.data(), static_cast<int>(out.size())) == 1, "the operating system gives random bytes");
}

std::uint64_t random_u64() {
  std::array<std::uint8_t, 8> bytes{};
  fill_random(bytes);
  return std::bit_cast<std::uint64_t>(bytes);
}

// The upper 53 bits make every double of that grid equally likely.
double random_chance() { return static_cast<double>(random_u64() >> 11) * 0x1p-53; }

std::string uuid_text(std::span<const std::uint8_t, 16> bytes, UuidVersion version) {
  std::string raw(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  raw[6] = static_cast<char>((raw[6] & 0x0f) | static_cast<std::uint8_t>(version) << 4);
  raw[8] = static_cast<char>((raw[8] & 0x3f) | 0x80);
  std::string text = hex_encode(raw);
  for (const std::size_t at : {20u, 16u, 12u, 8u}) text.insert(at, 1, '-');
  return text;
}

std::string random_uuid() {
  std::array<std::uint8_t, 16> bytes{};
  fill_random(bytes);
  return uuid_text(bytes, UuidVersion::random);
}

std::string hex_encode(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

std::optional<std::string> hex_decode(std::string_view text) {
  if (text.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  bytes.reserve(text.size() / 2);
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const int high = hex_value(text[i]);
    const int low = hex_value(text[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(high << 4 | low));
  }
  return bytes;
}

std::string base64_encode(std::string_view bytes) {
  std::string out(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int written =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()), bytes_of(bytes), static_cast<int>(bytes.size()));
  out.resize(static_cast<std::size_t>(written));
  return out;
}

std::optional<std::string> base64_decode(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  std::string out;
  if (!decode_base64(text, '+', '/', SpareBits::must_be_zero, out)) return std::nullopt;
  return out;
}

bool base64url_decode(std::string_view text, std::string& out) {
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  return decode_base64(text, '-', '_', SpareBits::ignored, out);
}

std::optional<std::string> base64url_decode_strictly(std::string_view text) {
  std::string out;
  if (!decode_base64(text, '-', '_', SpareBits::must_be_zero, out)) return std::nullopt;
  return out;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

} // namespace oncekey
