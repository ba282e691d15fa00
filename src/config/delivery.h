// delivery: what a configuration says about webhooks that come in, and about the places that messages are delivered to.
#pragma once

#include "config/config.h"
#include "signatures/provider.h"

#include <memory>

namespace oncekey {

// The provider that a webhook names; a fault if there is none, or the settings of an "hmac" one contradict each other.
Result<std::shared_ptr<const WebhookProvider>> provider_without_secrets(const Webhook& webhook);
// A fault if there is no secret, or one is not of the provider's form.
Status check_secrets(const WebhookProvider& provider, const Webhook& webhook);
// Both.
Result<std::shared_ptr<const WebhookProvider>> provider_of(const Webhook& webhook);

// Does the configuration have a webhook or destination whose jobs have this name?
bool has_endpoint(const Config& config, std::string_view name);
// Why a job without one is dead, and is not retried.
inline constexpr std::string_view kNoSuchEndpoint = "no webhook or destination of this name is configured";

} // namespace oncekey
