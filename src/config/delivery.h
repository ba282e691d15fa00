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

} // namespace oncekey
