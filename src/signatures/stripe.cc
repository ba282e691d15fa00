// Stripe: `Stripe-Signature: t=TIME,v1=HEX[,v1=HEX...]`, HMAC-SHA-256 over TIME, a full stop and the body. The key is
// the whole secret, `whsec_` included.
#include "signatures/signing.h"

namespace oncekey {
namespace {

struct StripeHeader {
  std::string_view time_text;
  WallSeconds time;
  std::vector<std::string_view> signatures;
};

// Strict where Stripe's own libraries are: no blanks behind commas, and schemes other than v1 do not count (v0 is that
// of test events, and it is weaker).
std::variant<StripeHeader, Refused> parse_stripe_header(std::string_view text) {
  const auto malformed = [](std::string why) { return Refused{WebhookFault::header_malformed, std::move(why)}; };
  StripeHeader header;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
    if (part.starts_with("t=")) {
      if (!header.time_text.empty()) return malformed("Stripe-Signature has two times");
      header.time_text = part.substr(2);
    } else if (part.starts_with("v1=")) {
      if (header.signatures.size() == kSignaturesMax) return malformed("Stripe-Signature has too many signatures");
      header.signatures.push_back(part.substr(3));
    }
  }
  const auto time = parse_unix_seconds(header.time_text);
  if (!time) return malformed("Stripe-Signature has no time in whole seconds");
  if (header.signatures.empty()) return malformed("Stripe-Signature has no v1 signature");
  header.time = *time;
  return header;
}

} // namespace

Verification verify_stripe(const WebhookCheck& check) {
  const std::string_view body = check.request.body;
  SignedHeaders headers(check);
  const std::string_view text = headers.only("Stripe-Signature");
  if (headers.refused()) return *headers.refused();
  const auto parsed = parse_stripe_header(text);
  if (const auto* refused = std::get_if<Refused>(&parsed)) return *refused;
  const auto& header = std::get<StripeHeader>(parsed);
  if (auto refused = check_time(header.time, check.tolerance, check.now)) return *std::move(refused);
  const std::array<std::string_view, 3> pieces{header.time_text, ".", body};
  if (!any_mac_matches(check.keys, pieces, header.signatures, hex_encode)) return wrong_signature();
  return verified_by_body(body, "/id");
}

} // namespace oncekey
