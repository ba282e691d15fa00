// redis_store: records in a Redis server or a Redis Cluster, shared by any number of gateways.
//
// Each call is one script run on the server that has the record; calls that come together travel together. Expiry is
// Redis' own. What a Redis promises depends on its settings: it is examined when it is connected and every few seconds
// (store_state.h has the levels). A server that may evict records is refused. A server that has forgotten (FLUSHALL, a
// restored backup, a failover to a replica that was behind) is noticed by its marker, and claims are refused until an
// operator has accepted the loss.
//
// What is lost when: a Redis that fails over loses what its replica did not have yet. With `wait=N` in the URL a call
// is answered only when N replicas have confirmed, which makes that rare; Redis does not promise that it never happens.
//
// Calls are made once: a fault of kind `timeout` leaves the outcome unknown (GuardedStore does what follows from it).
#pragma once

#include "base/log.h"
#include "core/sealing.h"
#include "core/store.h"
#include "store/common/calls.h"
#include "store/common/store_note.h"

namespace oncekey {

struct RedisOptions {
  // redis://, rediss://, redis+cluster:// or rediss+cluster://; redis_url.h has the rest.
  std::string url;
  Log& log;
  // How long a call may take; the URL's call_timeout comes first.
  Millis call_timeout{2000};
  // Seals the secret; null where the store is not encrypted. Outlives the store.
  const Sealer* sealer = nullptr;
  // For tests: the time to go by in place of the servers' clocks.
  std::function<Time()> clock = nullptr;
  QueueLimits queue_limits = {};
};

// Blocks for up to some seconds. A fault says which server, what failed, and what to do about it.
Result<std::unique_ptr<Store>> open_redis(const RedisOptions& options);

// store/open_store.h.
Status reach_redis(const RedisOptions& options);
// Whether a gateway has made the store. Makes nothing.
Result<bool> redis_store_exists(const RedisOptions& options);
Result<std::string> read_note_redis(const RedisOptions& options, StoreNote note);
Result<bool> write_note_redis(const RedisOptions& options, StoreNote note, const std::string& expected,
                              const std::string& next);
Status reseal_secret_redis(const RedisOptions& options);

// An operator's word that what the store has forgotten is accounted for: its gateways take claims again.
Status accept_lost_memory_redis(const RedisOptions& options);

} // namespace oncekey
