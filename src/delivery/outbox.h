// Outbox: takes messages of an application for the destinations of the configuration. docs/WEBHOOKS.md.
//
//   POST /outbox
//   Idempotency-Key: order-17-shipped      names the message: the same key is staged once
//   Oncekey-Destination: billing           one of the configured names; where that is, only the configuration says
//   Oncekey-Order: order-17                optional: messages with the same value go one after another
//   Oncekey-Method: PUT                    optional: POST otherwise
//
// The body and the Content-* fields are the message. 202 says that it is as durable as the store and will be delivered;
// the same key again is 200 with the same message, and 422 with another one.
#pragma once

#include "delivery/couriers.h"
#include "http/server.h"

namespace oncekey {

std::unique_ptr<Handler> make_outbox(GatewayShared& shared, DeliveryMetrics& metrics, Couriers& couriers, Loop& loop);

} // namespace oncekey
