#include "core/sealing.h"

#include "base/enum_name.h"
#include "base/faults.h"

#include <oncekey/check.h>

#include <charconv>
#include <cstring>

namespace oncekey {
namespace {

constexpr std::string_view kSalt = "oncekey sealing 1";

std::string_view view(const auto& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

Secret secret_of(std::string_view bytes) {
  Secret secret{};
  ONCEKEY_CHECK(bytes.size() == secret.size(), "a key has 32 bytes");
  std::memcpy(secret.data(), bytes.data(), secret.size());
  return secret;
}

// HKDF-Extract. `key` has 32 bytes.
Secret extract(std::string_view key) {
  const std::array<std::string_view, 1> pieces{key};
  return secret_of(Hmac(HashAlgorithm::sha256, kSalt).of(pieces));
}

// HKDF-Expand, whose one block ends with the byte 1.
Secret expand(const KeyedHash& derive, SealedPart part, const RecordId& id, std::uint64_t fence) {
  std::array<char, sizeof fence> number;
  std::memcpy(number.data(), &fence, sizeof fence);
  const std::array<std::string_view, 4> info{enum_name(part), view(id.bytes), view(number), "\x01"};
  return derive.of(info);
}

std::optional<std::string> key_bytes(std::string_view text) {
  std::optional<std::string> bytes = text.size() == 2 * sizeof(Secret) ? hex_decode(text) : base64_decode(text);
  return bytes && bytes->size() == sizeof(Secret) ? bytes : std::nullopt;
}

std::string_view next_line(std::string_view& rest) {
  const std::size_t end = std::min(rest.find('\n'), rest.size());
  std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  while (line.ends_with('\r') || line.ends_with(' ')) line.remove_suffix(1);
  return line;
}

} // namespace

Result<std::unique_ptr<const SealingKeys>> SealingKeys::parse(std::string_view text, const std::string& file) {
  auto keys = std::make_unique<SealingKeys>();
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = next_line(text);
    if (line.empty() || line.starts_with('#')) continue;
    const std::size_t space = std::min(line.find(' '), line.size());
    std::uint32_t id = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + space, id);
    const std::optional<std::string> bytes = key_bytes(line.substr(std::min(space + 1, line.size())));
    if (error != std::errc{} || end != line.data() + space || id == 0 || !bytes) {
      return invalid(
          "{}:{}: expected \"ID KEY\": a number from 1 to 4294967295, a space, and 32 bytes as 64 hexadecimal digits "
          "or 44 characters of base64",
          file, number);
    }
    if (keys->find(id) != nullptr) return invalid("{}:{}: key {} stands twice in the file", file, number, id);
    keys->keys_.push_back(std::make_unique<const Key>(id, extract(*bytes)));
  }
  if (keys->keys_.empty())
    return invalid("{} holds no key: make one with: echo \"1 $(openssl rand -hex 32)\" > {}", file, file);
  return std::unique_ptr<const SealingKeys>(std::move(keys));
}

const SealingKeys::Key* SealingKeys::find(std::uint32_t id) const {
  for (const auto& key : keys_) {
    if (key->id == id) return key.get();
  }
  return nullptr;
}

Sealed SealingKeys::seal(SealedPart part, const RecordId& id, std::uint64_t fence, std::string plain) const {
  const Key& key = *keys_.front();
  Sealed sealed{key.id, fence, random_nonce(), std::move(plain)};
  gcm_seal(expand(key.derive, part, id, fence), sealed.nonce, sealed.bytes);
  return sealed;
}

Result<std::string> SealingKeys::open(SealedPart part, const RecordId& id, const Sealed& sealed) const {
  const Key* const key = find(sealed.key_id);
  if (key == nullptr)
    return unavailable(fmt::format("it is sealed with key {}, which encryption_key_file does not hold", sealed.key_id));
  std::optional<std::string> plain = gcm_open(expand(key->derive, part, id, sealed.fence), sealed.nonce, sealed.bytes);
  if (!plain) {
    return corrupt(
        fmt::format("it does not open with key {}: its bytes are damaged, or another key was sealed with under this id",
                    sealed.key_id));
  }
  return *std::move(plain);
}

std::string SealingKeys::ids() const {
  std::string text;
  for (const auto& key : keys_) text += fmt::format("{}{}", text.empty() ? "" : ", ", key->id);
  return text;
}

Status SealingKeys::may_follow(const SealingKeys& before) const {
  const std::array<std::string_view, 1> text{"check"};
  for (const auto& old : before.keys_) {
    const Key* const here = find(old->id);
    if (here != nullptr && here->derive.of(text) != old->derive.of(text))
      return invalid("key {} is another one now: give a new key a new id", old->id);
  }
  if (find(before.sealing_id()) == nullptr) {
    return invalid("key {} has sealed until now and is not in the file: leave it there until its answers have expired",
                   before.sealing_id());
  }
  // Gateways seal the store's secret with the highest id they see: below it, the secret would stay with a key that is
  // taken out one day.
  if (sealing_id() < before.sealing_id()) {
    return invalid("key {} comes first and key {} has sealed until now: give a new key a higher id", sealing_id(),
                   before.sealing_id());
  }
  return ok_status();
}

void Sealer::use(std::unique_ptr<const SealingKeys> keys) {
  const std::lock_guard lock(mutex_);
  current_.store(keys.get(), std::memory_order_release);
  all_.push_back(std::move(keys));
}

} // namespace oncekey
