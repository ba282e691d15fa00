// GitHub: `X-Hub-Signature-256: sha256=HEX`, HMAC-SHA-256 over the body. Neither a time nor the delivery's id is
// signed: a reader of one delivery can send it again under another id. So a repetition is told by the body, which holds
// what happened and when. GitHub's own redelivery has the same body and the same id.
#include "signatures/signing.h"

namespace oncekey {

Verification verify_github(const WebhookCheck& check) {
  Verification verified = verify_signed_body(check, "X-Hub-Signature-256", "sha256=", hex_encode, "X-GitHub-Delivery");
  if (auto* believed = std::get_if<Verified>(&verified)) believed->told_by_body = true;
  return verified;
}

} // namespace oncekey
