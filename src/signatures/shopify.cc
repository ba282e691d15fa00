// Shopify: `X-Shopify-Hmac-Sha256`, base64 of HMAC-SHA-256 over the body; the key is the app's client secret. A
// delivery is told by X-Shopify-Webhook-Id. X-Shopify-Event-Id would be the wrong one: it is the same for all
// subscriptions that one change in the shop sets off, and their deliveries differ.
#include "signatures/signing.h"

namespace oncekey {

Verification verify_shopify(const WebhookCheck& check) {
  return verify_signed_body(check, "X-Shopify-Hmac-Sha256", "", base64_encode, "X-Shopify-Webhook-Id");
}

} // namespace oncekey
