// beats: which gateways are on a store: a hash beside what the whole store shares, with a field for each of them.
#pragma once

#include "store/redis/servers.h"

namespace oncekey::redis {

// Store::beat.
Task<Result<std::vector<GatewayBeat>>> beat(Servers& servers, GatewayBeat mine);

} // namespace oncekey::redis
