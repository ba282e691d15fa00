// staging: how the ids of jobs are made, and what a job has from its endpoint. The same for the inbox and the outbox.
#pragma once

#include "base/crypto.h"
#include "config/config.h"
#include "core/job_store.h"

namespace oncekey {

// Names something of one place: an event of a webhook, a message to a destination, an order of either.
inline RecordId name_of(const KeyedHash& hash, std::string_view what, std::string_view place, std::string_view name) {
  const std::array<std::string_view, 3> parts{what, place, name};
  return RecordId{hash.of(parts)};
}

// Of what an application stages itself; a webhook has its own max_body.
inline constexpr std::uint64_t kMessageBytesMax = 4u << 20;

// A job for the endpoint. Id, key, order, fingerprint and the message's content are the caller's to set.
inline StageRequest job_for(const Endpoint& endpoint) {
  StageRequest job;
  job.route = endpoint.name;
  job.retention = endpoint.remember;
  job.message.target = endpoint.url.origin() + endpoint.url.target;
  return job;
}

} // namespace oncekey
