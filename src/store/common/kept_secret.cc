#include "store/common/kept_secret.h"

#include "base/faults.h"
#include "base/private_files.h"
#include "core/codec_parts.h"

#include <cstring>

namespace oncekey {
namespace {

constexpr std::size_t kCheckBytes = sizeof(HashBytes);
constexpr std::size_t kClearBytes = kCheckBytes + sizeof(Secret);
constexpr std::size_t kSealedBytes = kCheckBytes + 4 + sizeof(GcmNonce) + sizeof(Secret) + kGcmTagBytes;

Fault does_not_fit() {
  return corrupt(
      "the secret that the store keeps does not fit its check value: with another secret no key would be found, and "
      "every retry would be executed again. Restore it from a backup");
}

Secret secret_in(std::string_view bytes) {
  Secret secret{};
  std::memcpy(secret.data(), bytes.data(), secret.size());
  return secret;
}

} // namespace

HashBytes secret_check(const Secret& secret) {
  const std::array<std::string_view, 1> text{"oncekey: check value of the store's secret"};
  return KeyedHash(secret).of(text);
}

KeptSecret::KeptSecret(const Secret& secret, const Sealer* sealer) {
  codec::field(bytes_, secret_check(secret));
  if (sealer == nullptr) {
    codec::field(bytes_, secret);
    return;
  }
  const std::string plain(secret.begin(), secret.end());
  const Sealed sealed = sealer->keys().seal(SealedPart::secret, RecordId{}, 0, plain);
  codec::each(bytes_, sealed.key_id, sealed.nonce);
  bytes_ += sealed.bytes;
}

Result<KeptSecret> KeptSecret::parse(std::string_view bytes) {
  if (bytes.size() != kClearBytes && bytes.size() != kSealedBytes)
    return corrupt("what stands in place of the store's secret was not written by oncekey");
  KeptSecret kept(bytes);
  if (!kept.is_sealed() && !kept.is_of(secret_in(bytes.substr(kCheckBytes)))) return does_not_fit();
  return kept;
}

Result<Secret> KeptSecret::open(const Sealer* sealer) const {
  if (!is_sealed()) return secret_in(std::string_view(bytes_).substr(kCheckBytes));
  const Sealed kept = sealed();
  if (sealer == nullptr)
    return invalid("the store is encrypted with key {}: set encryption_key_file to the file that holds it",
                   kept.key_id);
  const Result<std::string> plain = sealer->keys().open(SealedPart::secret, RecordId{}, kept);
  if (!plain && plain.fault().kind == FaultKind::corrupt) {
    return invalid(
        "key {} of encryption_key_file is not the key {} that the store is encrypted with: use the store's own key "
        "file",
        kept.key_id, kept.key_id);
  }
  if (!plain) {
    return invalid(
        "the store is encrypted with key {}, and encryption_key_file holds {}: add that key, below the one that seals",
        kept.key_id, sealer->keys().ids());
  }
  const Secret secret = secret_in(*plain);
  if (!is_of(secret)) return does_not_fit();
  return secret;
}

bool KeptSecret::is_of(const Secret& secret) const {
  const HashBytes check = secret_check(secret);
  return bytes_.size() >= kCheckBytes && std::memcmp(bytes_.data(), check.data(), kCheckBytes) == 0;
}

bool KeptSecret::must_be_resealed(const Sealer* sealer) const {
  return sealer != nullptr && (!is_sealed() || sealed().key_id < sealer->keys().sealing_id());
}

bool KeptSecret::is_sealed() const { return bytes_.size() == kSealedBytes; }

std::string secret_line(const Secret& secret, const Sealer* sealer) {
  return (sealer == nullptr ? hex_encode(secret) : hex_encode(KeptSecret(secret, sealer).bytes())) + "\n";
}

Result<Secret> parse_secret_line(std::string_view line, const std::string& path, const Sealer* sealer) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  const std::optional<std::string> bytes = hex_decode(line);
  if (bytes && bytes->size() == sizeof(Secret)) return secret_in(*bytes);
  const Result<KeptSecret> kept = KeptSecret::parse(bytes.value_or(""));
  if (kept) return kept->open(sealer);
  return corrupt(
      fmt::format("{} is damaged: expected 64 hexadecimal digits, or {} where the store is encrypted, got {} "
                  "characters. Put the file back from a backup of the folder",
                  path, 2 * kSealedBytes, line.size()));
}

Status reseal_secret_file(const std::string& path, const Sealer& sealer) {
  const Result<std::optional<std::string>> line = read_file_if_there(path, kSecretFileBytesMax);
  if (!line) return line.fault();
  if (!*line) return ok_status(); // an empty store that could not be made yet
  const Result<Secret> secret = parse_secret_line(**line, path, &sealer);
  if (!secret) return secret.fault();
  const Result<KeptSecret> kept = KeptSecret::parse(hex_decode((*line)->substr(0, 2 * kSealedBytes)).value_or(""));
  if (kept && !kept->must_be_resealed(&sealer)) return ok_status();
  return replace_private_file(path, secret_line(*secret, &sealer), Sync::yes);
}

Sealed KeptSecret::sealed() const {
  Sealed sealed;
  codec::Cursor cursor(std::string_view(bytes_).substr(kCheckBytes));
  codec::each(cursor, sealed.key_id, sealed.nonce);
  sealed.bytes = cursor.take(sizeof(Secret) + kGcmTagBytes);
  return sealed;
}

} // namespace oncekey
