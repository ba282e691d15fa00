#include "signatures/provider.h"

#include "base/enum_name.h"
#include "signatures/signing.h"

#include <fmt/format.h>

#include <algorithm>

namespace oncekey {
namespace {

bool is_blank(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); });
}

struct NamedProvider {
  std::string_view name;
  Verification (*verify)(const WebhookCheck&);
  WebhookProvider::CheckSecret check_secret = nullptr;
};

constexpr NamedProvider kProviders[] = {
    {"stripe", verify_stripe},   {"github", verify_github},
    {"shopify", verify_shopify}, {"standard", verify_standard, check_standard_secret},
    {"slack", verify_slack},     {"twilio", verify_twilio}};

} // namespace

std::string_view to_string(WebhookFault fault) { return enum_name(fault); }

Status WebhookProvider::check_secret(std::string_view secret) const {
  if (is_blank(secret)) return invalid("the secret is empty: every sender could sign with it");
  return check_form_ == nullptr ? ok_status() : check_form_(secret);
}

Verification WebhookProvider::verify(const WebhookRequest& request, std::span<const std::string> secrets,
                                     std::chrono::seconds tolerance, WallSeconds now) const {
  if (secrets.empty()) return Refused{WebhookFault::secret_unusable, "no secret is configured"};
  for (const std::string& secret : secrets) {
    // A secret that cannot be used is a mistake in the configuration. Falling back to the others would hide it.
    if (const Status usable = check_secret(secret); !usable)
      return Refused{WebhookFault::secret_unusable, usable.fault().message};
  }
  return verify_({request, secrets, tolerance, now});
}

Result<std::unique_ptr<WebhookProvider>> webhook_provider(std::string_view name) {
  std::string known;
  for (const NamedProvider& each : kProviders) {
    if (each.name == name) return std::make_unique<WebhookProvider>(each.verify, each.check_secret);
    known.append(each.name).append(", ");
  }
  return invalid(fmt::format("unknown provider \"{}\"; use one of {}hmac", name, known));
}

} // namespace oncekey
