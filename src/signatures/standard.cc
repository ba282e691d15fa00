// Standard Webhooks, also under Svix's header names: `webhook-id`, `webhook-timestamp` and `webhook-signature`, the
// last a list of signatures with blanks between them. `v1,BASE64` is HMAC-SHA-256 and `v1a,BASE64` is ed25519, both
// over id, time and body with full stops between them. Secrets: `whsec_` and base64 for HMAC, `whpk_` and base64 of the
// public key for ed25519; base64 alone counts as the former.
#include "signatures/signing.h"

namespace oncekey {
namespace {

constexpr std::string_view kSymmetric = "whsec_";
constexpr std::string_view kPublic = "whpk_";

struct HeaderNames {
  std::string_view id, timestamp, signature;
};
constexpr HeaderNames kStandardNames{"webhook-id", "webhook-timestamp", "webhook-signature"};
constexpr HeaderNames kSvixNames{"svix-id", "svix-timestamp", "svix-signature"};

std::optional<std::string> decoded_secret(std::string_view secret) {
  for (const std::string_view prefix : {kSymmetric, kPublic}) {
    if (secret.starts_with(prefix)) secret.remove_prefix(prefix.size());
  }
  return base64_decode(secret);
}

struct StandardSignatures {
  std::vector<std::string_view> v1;
  std::vector<std::string_view> v1a;
};

std::variant<StandardSignatures, Refused> parse_signatures(std::string_view list) {
  StandardSignatures signatures;
  std::size_t seen = 0;
  while (!list.empty()) {
    const std::size_t blank = list.find(' ');
    const std::string_view item = list.substr(0, blank);
    list = blank == std::string_view::npos ? std::string_view{} : list.substr(blank + 1);
    if (++seen > kSignaturesMax) return Refused{WebhookFault::header_malformed, "there are too many signatures"};
    if (item.starts_with("v1,")) signatures.v1.push_back(item.substr(3));
    if (item.starts_with("v1a,")) signatures.v1a.push_back(item.substr(4));
  }
  if (signatures.v1.empty() && signatures.v1a.empty())
    return Refused{WebhookFault::header_malformed, "there is neither a v1 nor a v1a signature"};
  return signatures;
}

bool any_ed25519_matches(std::span<const VerificationKey> keys, std::span<const std::string_view> signatures,
                         std::span<const std::string_view> pieces) {
  if (keys.empty() || signatures.empty()) return false;
  std::string message;
  for (const std::string_view piece : pieces) message.append(piece);
  for (const std::string_view text : signatures) {
    const auto signature = base64_decode(text);
    if (!signature) continue;
    for (const VerificationKey& key : keys) {
      if (key.verify(SignatureScheme::eddsa, message, *signature)) return true;
    }
  }
  return false;
}

} // namespace

Status add_standard_key(std::string_view secret, WebhookKeys& keys) {
  const auto bytes = decoded_secret(secret);
  if (!bytes || bytes->empty()) return invalid("the secret is not base64 behind whsec_ or whpk_");
  if (!secret.starts_with(kPublic)) {
    keys.macs.emplace_back(HashAlgorithm::sha256, *bytes);
    return ok_status();
  }
  auto key = VerificationKey::ed25519(*bytes);
  if (!key) return invalid("what stands behind whpk_ is not an ed25519 public key of 32 bytes");
  keys.public_keys.push_back(*std::move(key));
  return ok_status();
}

Verification verify_standard(const WebhookCheck& check) {
  const WebhookRequest& request = check.request;
  // A sender in transition sends both sets with the same content; one of them is enough, but it must be whole.
  const bool svix = !request.headers.has(kStandardNames.signature) && request.headers.has(kSvixNames.signature);
  const HeaderNames& names = svix ? kSvixNames : kStandardNames;
  SignedHeaders headers(check);
  const std::string_view list = headers.only(names.signature);
  const std::string_view id = headers.only(names.id);
  const std::string_view time = headers.timely(names.timestamp);
  if (headers.refused()) return *headers.refused();
  const auto parsed = parse_signatures(list);
  if (const auto* refused = std::get_if<Refused>(&parsed)) return *refused;

  const auto& signatures = std::get<StandardSignatures>(parsed);
  const std::array<std::string_view, 5> pieces{id, ".", time, ".", request.body};
  if (any_mac_matches(check.keys, pieces, signatures.v1, base64_encode) ||
      any_ed25519_matches(check.keys.public_keys, signatures.v1a, pieces))
    return verified_as(id, names.id);
  return wrong_signature();
}

} // namespace oncekey
