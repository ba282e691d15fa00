// verification_key: keys that check the signatures of token issuers, over OpenSSL.
//
// A key is made once, when it is loaded, and refuses what is too weak to prove anything. It fits one family of schemes:
// a secret never checks a signature that was made for a public key, which is how "alg confusion" works.
#pragma once

#include <oncekey/result.h>

#include <memory>

namespace oncekey {

// Named as JWS names them (RFC 7518, RFC 8037).
enum class SignatureScheme { hs256, rs256, ps256, es256, eddsa };

// May be used by several threads at once. Copies share the key.
class VerificationKey {
 public:
  // Numbers are big-endian bytes. A fault says why the key cannot be used.
  static Result<VerificationKey> rsa(std::string_view modulus, std::string_view exponent); // 2048 to 8192 bits
  static Result<VerificationKey> p256(std::string_view x, std::string_view y);             // 32 bytes each
  static Result<VerificationKey> ed25519(std::string_view public_key);                     // 32 bytes
  static Result<VerificationKey> secret(std::string_view bytes);                           // at least 32 bytes

  bool fits(SignatureScheme scheme) const;
  // False for a scheme that the key does not fit, and for a signature of another length. An ES256 signature is the two
  // numbers one after the other, as JWS has it.
  bool verify(SignatureScheme scheme, std::string_view message, std::string_view signature) const;

 private:
  struct Impl;
  explicit VerificationKey(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

} // namespace oncekey
