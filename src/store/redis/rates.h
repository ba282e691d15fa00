// rates: token buckets in Redis, shared by all gateways on it.
//
// A bucket is a small hash that expires when it would be full again. One script run takes a token, on the server's
// clock. A server that does not answer within 250 ms is a fault, and the gateway then lets the request pass: a limiter
// must not be slower than what it limits.
#pragma once

#include "store/redis/servers.h"

namespace oncekey::redis {

std::unique_ptr<RateKeeper> redis_rates(Servers& servers);

} // namespace oncekey::redis
