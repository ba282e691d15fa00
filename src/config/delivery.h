// delivery: what a configuration says about webhooks that come in, and about the places that messages are delivered to.
#pragma once

#include "config/config.h"
#include "inbox/provider.h"

#include <memory>

namespace oncekey {

// The provider of a webhook; a fault if the settings contradict each other or a secret is not of the provider's form.
Result<std::shared_ptr<const WebhookProvider>> provider_of(const Webhook& webhook);

} // namespace oncekey
