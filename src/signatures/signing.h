// signing: the providers, and the steps that they have in common.
#pragma once

#include "signatures/provider.h"

namespace oncekey {

// More signatures than any rotation needs; each costs a comparison for every secret.
inline constexpr std::size_t kSignaturesMax = 16;

// The value of a header that must be there exactly once and not be empty.
std::variant<std::string_view, Refused> only_header(const Headers& headers, std::string_view name);

// Whole seconds since 1970, in digits without leading zeros: the text is part of what is signed, so that no second
// spelling of a time may pass for it.
std::optional<WallSeconds> parse_unix_seconds(std::string_view text);

// Nothing when `sent` is within the tolerance.
std::optional<Refused> check_time(WallSeconds sent, std::chrono::seconds tolerance, WallSeconds now);

// Reads the headers of a request one after another. What comes after the first refusal is empty, which no signature is.
class SignedHeaders {
 public:
  explicit SignedHeaders(const WebhookCheck& check) : check_(check) {}

  // The value of a header that must be there exactly once and begin with the prefix, without it.
  std::string_view only(std::string_view name, std::string_view prefix = {});
  // A time in whole seconds within the tolerance: the text as it was sent, because that is what is signed.
  std::string_view timely(std::string_view name);
  const std::optional<Refused>& refused() const { return refused_; }

 private:
  const WebhookCheck& check_;
  std::optional<Refused> refused_;
};

using EncodeMac = std::string (*)(std::string_view mac);
// True if any of the signatures is the MAC of the pieces under any of the keys, in the encoding `encode` gives it.
// Every pair is compared, so that the time taken does not tell which one matched.
bool any_mac_matches(const WebhookKeys& keys, std::span<const std::string_view> pieces,
                     std::span<const std::string_view> signatures, EncodeMac encode);

// For providers that sign the body alone, by HMAC-SHA-256 in a header, and name the delivery in another one.
Verification verify_signed_body(const WebhookCheck& check, std::string_view signature_header, std::string_view prefix,
                                EncodeMac encode, std::string_view id_header);

// Verified under this event id, if it has the form of an idempotency key; else refused.
Verification verified_as(std::string_view event_id, std::string_view source);
// The string or number at the pointer of a JSON body, as an event id.
Verification verified_by_body(std::string_view body, std::string_view pointer);

inline Refused wrong_signature() { return {WebhookFault::signature_wrong, "no signature matches any of the secrets"}; }

Verification verify_stripe(const WebhookCheck& check);
Verification verify_github(const WebhookCheck& check);
Verification verify_shopify(const WebhookCheck& check);
Verification verify_standard(const WebhookCheck& check);
Status add_standard_key(std::string_view secret, WebhookKeys& keys);
Verification verify_slack(const WebhookCheck& check);
Verification verify_twilio(const WebhookCheck& check);

} // namespace oncekey
