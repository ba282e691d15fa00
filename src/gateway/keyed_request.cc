#include "gateway/keyed_request.h"

#include "core/decide.h"
#include "core/path.h"
#include "core/trace.h"

#include <algorithm>

namespace oncekey {
namespace {

// As much of a path as a person wants to read in a listing.
constexpr std::size_t kShownTargetMax = 1024;

} // namespace

ClaimRequest claim_for(const GatewayShared& shared, const KeyedRequest& request) {
  const Policy& policy = request.route.policy;
  ClaimRequest wanted;
  wanted.id = request.admitted.id;
  wanted.fingerprint = request.admitted.fingerprint;
  wanted.lease = policy.lease;
  wanted.retention = request.admitted.retention;
  wanted.abandoned = abandoned_rule(policy);
  wanted.route = request.route.name;
  // What the store keeps for people is printable, so that no client can break a listing.
  wanted.key = request.admitted.key;
  wanted.method = request.head.method;
  wanted.target = printable_target(request.head.path().substr(0, kShownTargetMax));
  wanted.context.gateway = shared.name;
  wanted.context.trace = trace_of(request.head.headers);
  return wanted;
}

std::uint64_t claim_bytes(const KeyedRequest& request) {
  constexpr std::uint64_t kFixedBytes = 208;
  return kFixedBytes + request.admitted.key.size() + request.route.name.size() +
         std::min<std::size_t>(request.head.path().size(), kShownTargetMax);
}

} // namespace oncekey
