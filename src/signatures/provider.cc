#include "signatures/provider.h"

#include "base/enum_name.h"
#include "signatures/providers.h"

#include <fmt/format.h>

#include <algorithm>

namespace oncekey {
namespace {

bool is_blank(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); });
}

} // namespace

std::string_view to_string(WebhookFault fault) { return enum_name(fault); }

Status WebhookProvider::check_secret(std::string_view secret) const {
  if (is_blank(secret)) return invalid("the secret is empty: every sender could sign with it");
  return ok_status();
}

Verification WebhookProvider::verify(const WebhookRequest& request, std::span<const std::string> secrets,
                                     std::chrono::seconds tolerance, WallSeconds now) const {
  if (secrets.empty()) return Refused{WebhookFault::secret_unusable, "no secret is configured"};
  for (const std::string& secret : secrets) {
    // A secret that cannot be used is a mistake in the configuration. Falling back to the others would hide it.
    if (const Status usable = check_secret(secret); !usable)
      return Refused{WebhookFault::secret_unusable, usable.fault().message};
  }
  return verify_with(request, secrets, tolerance, now);
}

Result<std::unique_ptr<WebhookProvider>> webhook_provider(std::string_view name) {
  std::string known;
  for (const auto make : {make_stripe, make_github, make_shopify, make_standard, make_slack, make_twilio}) {
    std::unique_ptr<WebhookProvider> provider = make();
    if (provider->name() == name) return provider;
    known.append(provider->name()).append(", ");
  }
  return invalid(fmt::format("unknown provider \"{}\"; use one of {}hmac", name, known));
}

} // namespace oncekey
