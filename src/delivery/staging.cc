#include "delivery/staging.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace oncekey {

RecordId name_of(const KeyedHash& hash, std::string_view what, std::string_view place, std::string_view name) {
  const std::array<std::string_view, 3> parts{what, place, name};
  return RecordId{hash.of(parts)};
}

ClaimRequest staging_claim(const Endpoint& endpoint, Claimable message) {
  ClaimRequest claim;
  claim.id = message.id;
  claim.fingerprint = message.fingerprint;
  claim.retention = endpoint.remember;
  claim.route = endpoint.name;
  claim.key = std::move(message.key);
  claim.method = std::move(message.method);
  claim.target = endpoint.url.origin() + endpoint.url.target;
  claim.staged = Staged{std::move(message.message), message.ordered};
  return claim;
}

} // namespace oncekey
