// limiting: the limits of accounts, which a request meets before its key is looked at.
#pragma once

#include "core/admit.h"
#include "core/limit.h"
#include "gateway/thread.h"

#include <optional>

namespace oncekey {

// What the limits of its account say about a request.
struct Limited {
  std::optional<Refusal> refusal; // it is over one of them
  std::optional<AccountPlaces::Place> place;
  // The token it has taken, to be given back if that proves to be unnecessary.
  std::optional<RateBucketId> bucket;
  Rate rate;
};

// A limiter that cannot reach its counts lets the request pass.
Task<void> ask_limits(GatewayThread& thread, Exchange& exchange, const Route& route, const Requester& requester,
                      Limited& out);

} // namespace oncekey
