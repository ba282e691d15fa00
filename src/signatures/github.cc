// GitHub: `X-Hub-Signature-256: sha256=HEX`, HMAC-SHA-256 over the body. Neither a time nor the delivery's id is
// signed: a reader of one delivery can send it again under another id. So a repetition is told by the body, which holds
// what happened and when. GitHub's own redelivery has the same body and the same id.
#include "signatures/providers.h"
#include "signatures/signing.h"

namespace oncekey {
namespace {

constexpr std::string_view kGithubSignature = "X-Hub-Signature-256";
constexpr std::string_view kGithubDelivery = "X-GitHub-Delivery";
constexpr std::string_view kGithubPrefix = "sha256=";

class GithubProvider final : public WebhookProvider {
 public:
  std::string_view name() const override { return "github"; }

 protected:
  Verification verify_with(const WebhookRequest& request, std::span<const std::string> secrets, std::chrono::seconds,
                           WallSeconds) const override {
    const auto header = only_header(request.headers, kGithubSignature);
    if (const auto* refused = std::get_if<Refused>(&header)) return *refused;
    std::string_view signature = std::get<std::string_view>(header);
    if (!signature.starts_with(kGithubPrefix))
      return Refused{WebhookFault::header_malformed, "X-Hub-Signature-256 does not begin with sha256="};
    signature.remove_prefix(kGithubPrefix.size());
    if (!any_mac_matches(HashAlgorithm::sha256, secrets, {request.body}, {&signature, 1}, hex_encode))
      return wrong_signature();
    const auto delivery = only_header(request.headers, kGithubDelivery);
    if (const auto* refused = std::get_if<Refused>(&delivery)) return *refused;
    Verification verified = verified_as(std::get<std::string_view>(delivery), kGithubDelivery);
    if (auto* believed = std::get_if<Verified>(&verified)) believed->told_by_body = true;
    return verified;
  }
};

} // namespace

std::unique_ptr<WebhookProvider> make_github() { return std::make_unique<GithubProvider>(); }

} // namespace oncekey
