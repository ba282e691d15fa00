// OpenSSL would rather have its hashes looked up by name at run time; see HmacStart for why that is too slow here.
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/crypto.h"

#include "base/url.h"

#include <oncekey/check.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <variant>

namespace oncekey {
namespace {

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

// OpenSSL's functions of one hash.
template <class State, auto Init, auto Update, auto Final, std::size_t BlockBytes, std::size_t HashLength>
struct PlainHash {
  static constexpr std::size_t kBlockBytes = BlockBytes;
  using Bytes = std::array<std::uint8_t, HashLength>;

  PlainHash() { ONCEKEY_CHECK(Init(&state) == 1, "OpenSSL has the hash"); }
  PlainHash& add(const void* bytes, std::size_t count) {
    ONCEKEY_CHECK(Update(&state, bytes, count) == 1, "hashes do not fail on memory");
    return *this;
  }
  Bytes finish() { // once
    Bytes out{};
    ONCEKEY_CHECK(Final(out.data(), &state) == 1, "hashes do not fail on memory");
    return out;
  }
  State state;
};
using PlainSha1 = PlainHash<SHA_CTX, SHA1_Init, SHA1_Update, SHA1_Final, SHA_CBLOCK, SHA_DIGEST_LENGTH>;
using PlainSha256 =
    PlainHash<SHA256_CTX, SHA256_Init, SHA256_Update, SHA256_Final, SHA256_CBLOCK, SHA256_DIGEST_LENGTH>;
using PlainSha512 =
    PlainHash<SHA512_CTX, SHA512_Init, SHA512_Update, SHA512_Final, SHA512_CBLOCK, SHA512_DIGEST_LENGTH>;

// RFC 2104. Both starting points that the key gives are kept, so that a MAC begins with a copy of a few words and
// neither allocates nor locks; OpenSSL's own HMAC spends more time around a small message than on it.
template <class Hash>
class HmacStart {
 public:
  explicit HmacStart(std::string_view secret) {
    std::array<std::uint8_t, Hash::kBlockBytes> block{};
    if (secret.size() <= block.size()) {
      std::copy(secret.begin(), secret.end(), block.begin());
    } else {
      const auto hash = Hash().add(secret.data(), secret.size()).finish();
      std::copy(hash.begin(), hash.end(), block.begin());
    }
    for (std::uint8_t& byte : block) byte ^= 0x36;
    inner_.add(block.data(), block.size());
    for (std::uint8_t& byte : block) byte ^= 0x36 ^ 0x5c;
    outer_.add(block.data(), block.size());
  }
  Hash begin() const { return inner_; }
  typename Hash::Bytes finish(Hash& begun) const {
    const auto hash = begun.finish();
    return Hash(outer_).add(hash.data(), hash.size()).finish();
  }

 private:
  Hash inner_;
  Hash outer_;
};

std::string_view text_of(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
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

struct KeyedHash::Impl {
  HmacStart<PlainSha256> start;
};

KeyedHash::KeyedHash(const Secret& secret)
    : impl_(std::make_unique<Impl>(Impl{HmacStart<PlainSha256>(text_of(secret))})) {
  const std::array<std::string_view, 1> what{"oncekey seed 1"};
  const HashBytes bytes = of(what);
  std::memcpy(&seed_, bytes.data(), sizeof seed_);
}
KeyedHash::~KeyedHash() = default;

HashBytes KeyedHash::of(std::span<const std::string_view> parts) const {
  static_assert(std::endian::native == std::endian::little, "lengths are hashed least significant byte first");
  PlainSha256 hash = impl_->start.begin();
  // Parts are short: they are gathered, so that OpenSSL is called once and not for each of them.
  std::array<char, 512> gathered;
  std::size_t count = 0;
  const auto put = [&](std::string_view bytes) {
    if (bytes.size() > gathered.size() - count) hash.add(gathered.data(), std::exchange(count, 0));
    if (bytes.size() > gathered.size()) {
      hash.add(bytes.data(), bytes.size());
    } else {
      count += bytes.copy(gathered.data() + count, bytes.size());
    }
  };
  for (const std::string_view part : parts) {
    const std::uint64_t length = part.size();
    put({reinterpret_cast<const char*>(&length), sizeof length});
    put(part);
  }
  hash.add(gathered.data(), count);
  return impl_->start.finish(hash);
}

struct Sha256::Impl {
  PlainSha256 hash;
};

Sha256::Sha256() : impl_(std::make_unique<Impl>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::string_view bytes) { impl_->hash.add(bytes.data(), bytes.size()); }
HashBytes Sha256::finish() { return impl_->hash.finish(); }

std::string sha256_hex(std::initializer_list<std::string_view> pieces) {
  Sha256 hash;
  for (const std::string_view piece : pieces) hash.update(piece);
  return hex_encode(hash.finish());
}

struct Hmac::Impl {
  std::variant<HmacStart<PlainSha1>, HmacStart<PlainSha256>, HmacStart<PlainSha512>> start;
};

Hmac::Hmac(HashAlgorithm algorithm, std::string_view secret) {
  switch (algorithm) {
    case HashAlgorithm::sha1:
      impl_ = std::make_shared<const Impl>(Impl{HmacStart<PlainSha1>(secret)});
      break;
    case HashAlgorithm::sha256:
      impl_ = std::make_shared<const Impl>(Impl{HmacStart<PlainSha256>(secret)});
      break;
    case HashAlgorithm::sha512:
      impl_ = std::make_shared<const Impl>(Impl{HmacStart<PlainSha512>(secret)});
      break;
  }
}

std::string Hmac::of(std::span<const std::string_view> pieces) const {
  return std::visit(
      [&](const auto& start) {
        auto hash = start.begin();
        for (const std::string_view piece : pieces) hash.add(piece.data(), piece.size());
        return std::string(text_of(start.finish(hash)));
      },
      impl_->start);
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
  std::string text(2 * bytes.size(), '\0');
  char* out = text.data();
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    *out++ = kDigits[byte >> 4];
    *out++ = kDigits[byte & 15];
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
