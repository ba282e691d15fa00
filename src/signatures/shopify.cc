// Shopify: `X-Shopify-Hmac-Sha256`, base64 of HMAC-SHA-256 over the body; the key is the app's client secret. A
// delivery is told by X-Shopify-Webhook-Id. X-Shopify-Event-Id would be the wrong one: it is the same for all
// subscriptions that one change in the shop sets off, and their deliveries differ.
#include "signatures/providers.h"
#include "signatures/signing.h"

namespace oncekey {
namespace {

constexpr std::string_view kShopifySignature = "X-Shopify-Hmac-Sha256";
constexpr std::string_view kShopifyDelivery = "X-Shopify-Webhook-Id";

class ShopifyProvider final : public WebhookProvider {
 public:
  std::string_view name() const override { return "shopify"; }

 protected:
  Verification verify_with(const WebhookRequest& request, std::span<const std::string> secrets, std::chrono::seconds,
                           WallSeconds) const override {
    const auto header = only_header(request.headers, kShopifySignature);
    if (const auto* refused = std::get_if<Refused>(&header)) return *refused;
    const std::string_view signature = std::get<std::string_view>(header);
    if (!any_mac_matches(HashAlgorithm::sha256, secrets, {request.body}, {&signature, 1}, base64_encode))
      return wrong_signature();
    const auto delivery = only_header(request.headers, kShopifyDelivery);
    if (const auto* refused = std::get_if<Refused>(&delivery)) return *refused;
    return verified_as(std::get<std::string_view>(delivery), kShopifyDelivery);
  }
};

} // namespace

std::unique_ptr<WebhookProvider> make_shopify() { return std::make_unique<ShopifyProvider>(); }

} // namespace oncekey
