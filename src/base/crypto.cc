#include "base/crypto.h"

#include <oncekey/check.h>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace oncekey {
namespace {

struct MacCtxFree {
  void operator()(EVP_MAC_CTX* ctx) const { EVP_MAC_CTX_free(ctx); }
};
using MacCtx = std::unique_ptr<EVP_MAC_CTX, MacCtxFree>;

} // namespace

// Setting the key up costs more than hashing a small request, so contexts that have it are kept and lent out.
struct KeyedHash::Impl {
  Secret secret;
  std::mutex mutex;
  std::vector<MacCtx> idle;

  MacCtx take() {
    {
      const std::lock_guard lock(mutex);
      if (!idle.empty()) {
        MacCtx ctx = std::move(idle.back());
        idle.pop_back();
        return ctx;
      }
    }
    EVP_MAC* mac = EVP_MAC_fetch(nullptr, OSSL_MAC_NAME_HMAC, nullptr);
    ONCEKEY_CHECK(mac != nullptr, "OpenSSL has HMAC");
    MacCtx ctx(EVP_MAC_CTX_new(mac));
    EVP_MAC_free(mac);
    char digest[] = "SHA256";
    const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                                 OSSL_PARAM_construct_end()};
    ONCEKEY_CHECK(ctx && EVP_MAC_init(ctx.get(), secret.data(), secret.size(), params) == 1,
                  "OpenSSL has HMAC-SHA-256");
    return ctx;
  }

  void give_back(MacCtx ctx) {
    const std::lock_guard lock(mutex);
    idle.push_back(std::move(ctx));
  }
};

KeyedHash::KeyedHash(const Secret& secret) : impl_(std::make_unique<Impl>()) { impl_->secret = secret; }
KeyedHash::~KeyedHash() = default;

HashBytes KeyedHash::of(std::span<const std::string_view> parts) const {
  // Each call into OpenSSL costs as much as hashing a block: the parts are laid out first, on the stack when they are
  // as small as ids are.
  std::size_t bytes = 0;
  for (const std::string_view part : parts) bytes += 8 + part.size();
  std::array<unsigned char, 1024> small;
  std::vector<unsigned char> large;
  unsigned char* begin = small.data();
  if (bytes > small.size()) {
    large.resize(bytes);
    begin = large.data();
  }
  unsigned char* out = begin;
  for (const std::string_view part : parts) {
    for (int i = 0; i < 8; ++i) *out++ = static_cast<unsigned char>(static_cast<std::uint64_t>(part.size()) >> (8 * i));
    out = std::copy(part.begin(), part.end(), out);
  }

  MacCtx ctx = impl_->take();
  HashBytes hash{};
  std::size_t written = 0;
  // A null key starts over with the one set up before.
  const bool good = EVP_MAC_init(ctx.get(), nullptr, 0, nullptr) == 1 && EVP_MAC_update(ctx.get(), begin, bytes) == 1 &&
                    EVP_MAC_final(ctx.get(), hash.data(), &written, hash.size()) == 1 && written == hash.size();
  ONCEKEY_CHECK(good, "HMAC-SHA-256 does not fail on memory");
  impl_->give_back(std::move(ctx));
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
