#include "base/verification_key.h"

#include "base/crypto.h"

#include <fmt/format.h>

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/rsa.h>

namespace oncekey {
namespace {

// The least by NIST SP 800-131A. Above the greatest, one check costs more CPU time than a caller without credentials
// may make the gateway spend.
constexpr int kRsaBitsMin = 2048;
constexpr int kRsaBitsMax = 8192;
constexpr std::size_t kCoordinateBytes = 32;
constexpr std::size_t kEd25519Bytes = 32;
// RFC 7518, 3.2: a key of the same size as the hash output or larger.
constexpr std::size_t kSecretBytesMin = 32;

using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using KeyContext = std::unique_ptr<EVP_PKEY_CTX, Freed<EVP_PKEY_CTX_free>>;
using Number = std::unique_ptr<BIGNUM, Freed<BN_free>>;
using Builder = std::unique_ptr<OSSL_PARAM_BLD, Freed<OSSL_PARAM_BLD_free>>;
using OpenSslParams = std::unique_ptr<OSSL_PARAM, Freed<OSSL_PARAM_free>>;
using DigestContext = std::unique_ptr<EVP_MD_CTX, Freed<EVP_MD_CTX_free>>;
using EcSignature = std::unique_ptr<ECDSA_SIG, Freed<ECDSA_SIG_free>>;

const unsigned char* bytes_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

Number number_of(std::string_view bytes) {
  return Number(BN_bin2bn(bytes_of(bytes), static_cast<int>(bytes.size()), nullptr));
}

Key key_from(const char* type, OSSL_PARAM_BLD* builder) {
  const OpenSslParams params(OSSL_PARAM_BLD_to_param(builder));
  const KeyContext context(EVP_PKEY_CTX_new_from_name(nullptr, type, nullptr));
  EVP_PKEY* made = nullptr;
  if (!params || !context || EVP_PKEY_fromdata_init(context.get()) != 1 ||
      EVP_PKEY_fromdata(context.get(), &made, EVP_PKEY_PUBLIC_KEY, params.get()) != 1) {
    // A refused key leaves an error in OpenSSL's queue, which the next TLS call of this thread would take for its own.
    ERR_clear_error();
    return nullptr;
  }
  return Key(made);
}

// The two numbers of a JWS signature as the DER that OpenSSL reads; empty if they are not a signature.
std::string der_of(std::string_view signature) {
  if (signature.size() != 2 * kCoordinateBytes) return {};
  const EcSignature parts(ECDSA_SIG_new());
  Number r = number_of(signature.substr(0, kCoordinateBytes));
  Number s = number_of(signature.substr(kCoordinateBytes));
  if (!parts || !r || !s || ECDSA_SIG_set0(parts.get(), r.get(), s.get()) != 1) return {};
  (void)r.release();
  (void)s.release();
  unsigned char* written = nullptr;
  const int length = i2d_ECDSA_SIG(parts.get(), &written);
  if (length <= 0) return {};
  std::string der(reinterpret_cast<const char*>(written), static_cast<std::size_t>(length));
  OPENSSL_free(written);
  return der;
}

bool verify_public(EVP_PKEY* key, SignatureScheme scheme, std::string_view message, std::string_view signature) {
  const DigestContext context(EVP_MD_CTX_new());
  EVP_PKEY_CTX* padding = nullptr;
  const EVP_MD* const hash = scheme == SignatureScheme::eddsa ? nullptr : EVP_sha256();
  bool good = context && EVP_DigestVerifyInit(context.get(), &padding, hash, nullptr, key) == 1;
  if (scheme == SignatureScheme::ps256) {
    // RFC 7518, 3.5: MGF1 with the same hash, and a salt of its size.
    good = good && EVP_PKEY_CTX_set_rsa_padding(padding, RSA_PKCS1_PSS_PADDING) == 1 &&
           EVP_PKEY_CTX_set_rsa_pss_saltlen(padding, RSA_PSS_SALTLEN_DIGEST) == 1 &&
           EVP_PKEY_CTX_set_rsa_mgf1_md(padding, EVP_sha256()) == 1;
  }
  good = good &&
         EVP_DigestVerify(context.get(), bytes_of(signature), signature.size(), bytes_of(message), message.size()) == 1;
  if (!good) ERR_clear_error();
  return good;
}

} // namespace

struct VerificationKey::Impl {
  enum class Family { secret, rsa, p256, ed25519 };
  Family family;
  Key key;                  // of all but secrets
  std::optional<Hmac> hmac; // of secrets alone
};

Result<VerificationKey> VerificationKey::rsa(std::string_view modulus, std::string_view exponent) {
  const Number n = number_of(modulus);
  const Number e = number_of(exponent);
  if (!n || !e) return invalid("the RSA key cannot be read");
  const int bits = BN_num_bits(n.get());
  if (bits < kRsaBitsMin || bits > kRsaBitsMax)
    return invalid(fmt::format("the RSA key has {} bits, and {} to {} are allowed", bits, kRsaBitsMin, kRsaBitsMax));
  if (BN_is_odd(e.get()) == 0 || BN_is_one(e.get()) == 1 || BN_num_bits(e.get()) > 64 || BN_is_odd(n.get()) == 0)
    return invalid("the RSA key has an exponent or a modulus that cannot be right");
  const Builder builder(OSSL_PARAM_BLD_new());
  Key key;
  if (builder && OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_N, n.get()) == 1 &&
      OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_E, e.get()) == 1)
    key = key_from("RSA", builder.get());
  if (!key) return invalid("the RSA key cannot be read");
  return VerificationKey(std::make_shared<const Impl>(Impl{Impl::Family::rsa, std::move(key), {}}));
}

Result<VerificationKey> VerificationKey::p256(std::string_view x, std::string_view y) {
  if (x.size() != kCoordinateBytes || y.size() != kCoordinateBytes)
    return invalid(fmt::format("a P-256 key has two coordinates of {} bytes", kCoordinateBytes));
  std::string point("\x04"); // uncompressed
  point.append(x).append(y);
  const Builder builder(OSSL_PARAM_BLD_new());
  Key key;
  if (builder && OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) == 1 &&
      OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY, point.data(), point.size()) == 1)
    key = key_from("EC", builder.get());
  if (!key) return invalid("the coordinates are not a point of P-256");
  return VerificationKey(std::make_shared<const Impl>(Impl{Impl::Family::p256, std::move(key), {}}));
}

Result<VerificationKey> VerificationKey::ed25519(std::string_view public_key) {
  if (public_key.size() != kEd25519Bytes)
    return invalid(fmt::format("an Ed25519 key has {} bytes, not {}", kEd25519Bytes, public_key.size()));
  Key key(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, bytes_of(public_key), public_key.size()));
  if (!key) {
    ERR_clear_error();
    return invalid("the Ed25519 key cannot be read");
  }
  return VerificationKey(std::make_shared<const Impl>(Impl{Impl::Family::ed25519, std::move(key), {}}));
}

Result<VerificationKey> VerificationKey::secret(std::string_view bytes) {
  if (bytes.size() < kSecretBytesMin)
    return invalid(fmt::format("the secret has {} bytes and could be guessed: HS256 needs at least {}", bytes.size(),
                               kSecretBytesMin));
  return VerificationKey(
      std::make_shared<const Impl>(Impl{Impl::Family::secret, nullptr, Hmac(HashAlgorithm::sha256, bytes)}));
}

bool VerificationKey::fits(SignatureScheme scheme) const {
  switch (scheme) {
    case SignatureScheme::hs256:
      return impl_->family == Impl::Family::secret;
    case SignatureScheme::rs256:
    case SignatureScheme::ps256:
      return impl_->family == Impl::Family::rsa;
    case SignatureScheme::es256:
      return impl_->family == Impl::Family::p256;
    case SignatureScheme::eddsa:
      return impl_->family == Impl::Family::ed25519;
  }
  return false;
}

bool VerificationKey::verify(SignatureScheme scheme, std::string_view message, std::string_view signature) const {
  if (!fits(scheme)) return false;
  if (scheme == SignatureScheme::hs256) {
    const std::array pieces{message};
    return equal_in_constant_time(impl_->hmac->of(pieces), signature);
  }
  if (scheme != SignatureScheme::es256) return verify_public(impl_->key.get(), scheme, message, signature);
  const std::string der = der_of(signature);
  return !der.empty() && verify_public(impl_->key.get(), scheme, message, der);
}

} // namespace oncekey
