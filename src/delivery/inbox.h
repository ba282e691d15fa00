// Inbox: takes webhooks. docs/WEBHOOKS.md.
//
// Nothing is believed before its signature is: verification comes before any work of the store. An event that is
// believed is remembered and staged in one step, and then acknowledged; a repetition finds that step done and is
// acknowledged as well. Without a store there is no acknowledgement, so that the sender tries again.
#pragma once

#include "delivery/couriers.h"
#include "http/server.h"

namespace oncekey {

// The public listener's handler, one for each thread: webhooks go to the inbox, everything else to the gateway.
Result<std::unique_ptr<Handler>> make_inbox(GatewayShared& shared, DeliveryMetrics& metrics, Couriers& couriers,
                                            Loop& loop, Handler& gateway);

} // namespace oncekey
