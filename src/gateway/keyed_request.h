// keyed_request: a request that was admitted under a key. It does not change from here on.
#pragma once

#include "core/admit.h"
#include "core/store.h"
#include "gateway/shared.h"

#include <string>

namespace oncekey {

struct KeyedRequest {
  const RequestHead& head;
  ForwardedFrom from;
  const Route& route;
  Admitted admitted;
  std::string body;
  bool answer_later = false; // the client asked for it and the route allows it
};

// What the store is asked for it.
ClaimRequest claim_for(const GatewayShared& shared, const KeyedRequest& request);

// What a record takes before it has an answer: its fixed fields and the texts for people.
std::uint64_t claim_bytes(const KeyedRequest& request);

} // namespace oncekey
