// providers: one constructor for each provider with a file of its own. Called by webhook_provider() alone.
#pragma once

#include "signatures/provider.h"

namespace oncekey {

std::unique_ptr<WebhookProvider> make_stripe();
std::unique_ptr<WebhookProvider> make_github();
std::unique_ptr<WebhookProvider> make_shopify();
std::unique_ptr<WebhookProvider> make_standard();
std::unique_ptr<WebhookProvider> make_slack();
std::unique_ptr<WebhookProvider> make_twilio();

} // namespace oncekey
