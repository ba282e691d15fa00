// KeptSecret: a store's hashing secret as the store keeps it, in clear or sealed, with proof that it is the right one.
//
// Ids and fingerprints are keyed with the secret. A store opened with another one looks empty: every retry would be
// executed again. So a store keeps a check value that only the right secret leads to. Where the store is encrypted, the
// secret is sealed: then it also shows whether a gateway has the right encryption key.
//
//   check:32 bytes secret:32 bytes                                        in clear
//   check:32 bytes key_id:u32 nonce:12 bytes ciphertext and tag:48 bytes  sealed
#pragma once

#include "base/crypto.h"
#include "core/sealing.h"

#include <oncekey/result.h>

#include <string>
#include <string_view>

namespace oncekey {

// Tells nothing about the secret.
HashBytes secret_check(const Secret& secret);

class KeptSecret {
 public:
  KeptSecret() = default;
  // Sealed with the newest key; in clear where `sealer` is null.
  KeptSecret(const Secret& secret, const Sealer* sealer);
  // What bytes() gave. `corrupt` if it is not that, or a secret in clear that does not fit its check value.
  static Result<KeptSecret> parse(std::string_view bytes);

  // A fault says which key is missing or wrong.
  Result<Secret> open(const Sealer* sealer) const;
  // Whether it is this secret. Needs no key.
  bool is_of(const Secret& secret) const;
  // Kept in clear, or sealed with a key whose id is below the one that seals now. Ids count, not places in the file, so
  // that gateways that are told of a new key one after another do not undo each other's work.
  bool must_be_resealed(const Sealer* sealer) const;

  const std::string& bytes() const { return bytes_; }

 private:
  explicit KeptSecret(std::string_view bytes) : bytes_(bytes) {}
  bool is_sealed() const;
  Sealed sealed() const;

  std::string bytes_;
};

inline constexpr std::size_t kSecretFileBytesMax = 1024;
// The line of the file `secret` in an embedded store's folder: the secret's 64 hexadecimal digits, or those of a sealed
// KeptSecret.
std::string secret_line(const Secret& secret, const Sealer* sealer);
// `path` is named in faults.
Result<Secret> parse_secret_line(std::string_view line, const std::string& path, const Sealer* sealer);
// Replaces the file if it must be resealed. For the process that has the store open.
Status reseal_secret_file(const std::string& path, const Sealer& sealer);

} // namespace oncekey
