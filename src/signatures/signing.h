// signing: the steps that the providers have in common.
#pragma once

#include "signatures/provider.h"

#include <initializer_list>
#include <vector>

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

// only_header, parse_unix_seconds and check_time in one, for providers with a time in a header of its own. Returns the
// text as it was sent, because that is what is signed.
std::variant<std::string_view, Refused> timely_header(const Headers& headers, std::string_view name,
                                                      std::chrono::seconds tolerance, WallSeconds now);

// True if any of the signatures is the MAC under any of the keys, in the encoding `encode` gives it. Every pair is
// compared, so that the time taken does not tell which one matched.
bool any_mac_matches(HashAlgorithm algorithm, std::span<const std::string> keys,
                     std::span<const std::string_view> pieces, std::span<const std::string_view> signatures,
                     std::string (*encode)(std::string_view mac));
inline bool any_mac_matches(HashAlgorithm algorithm, std::span<const std::string> keys,
                            std::initializer_list<std::string_view> pieces,
                            std::span<const std::string_view> signatures, std::string (*encode)(std::string_view mac)) {
  return any_mac_matches(algorithm, keys, std::span(pieces.begin(), pieces.size()), signatures, encode);
}

// Verified under this event id, if it has the form of an idempotency key; else refused.
Verification verified_as(std::string_view event_id, std::string_view source);
// The string or number at the pointer of a JSON body, as an event id.
Verification verified_by_body(std::string_view body, std::string_view pointer);

inline Refused wrong_signature() { return {WebhookFault::signature_wrong, "no signature matches any of the secrets"}; }

} // namespace oncekey
