#include "delivery/staging.h"

#include <fmt/format.h>

#include <array>

namespace oncekey {

RecordId name_of(const KeyedHash& hash, std::string_view what, std::string_view place, std::string_view name) {
  const std::array<std::string_view, 3> parts{what, place, name};
  return RecordId{hash.of(parts)};
}

StageRequest job_for(const Endpoint& endpoint) {
  StageRequest job;
  job.route = endpoint.name;
  job.retention = endpoint.remember;
  job.message.target = endpoint.url.origin() + endpoint.url.target;
  return job;
}

} // namespace oncekey
