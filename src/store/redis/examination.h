// examination: what a server's own settings promise.
//
//   power     appendonly yes, appendfsync always, no-appendfsync-on-rewrite no: synced before it is answered
//   process   appendonly yes, appendfsync no, or always with no-appendfsync-on-rewrite yes: written to the kernel
//   before
//             it is answered, so that a killed server has lost nothing, and a power cut takes what was not yet synced
//   none      everything else. `appendfsync everysec` belongs here: while its background sync runs, the server holds
//             writes back for up to two seconds and answers all the same, and a kill at that moment loses them. With
//             snapshots alone it loses what came after the last one.
#pragma once

#include "core/store.h"
#include "redis/redis_url.h"

#include <oncekey/result.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace oncekey::redis {

// INFO's "name:value" lines.
using InfoFields = std::map<std::string, std::string, std::less<>>;
InfoFields parse_info(std::string_view text);

// As CONFIG GET tells; nothing where it is forbidden or unknown.
struct ServerSettings {
  std::optional<std::string> appendfsync;
  std::optional<std::string> no_appendfsync_on_rewrite;
  std::optional<std::string> maxmemory_policy;
};

struct Examination {
  Durability durability = Durability::none;
  // Why this level and not a higher one, and what to change.
  std::string why;
  // The server may drop records to make room: claims must be refused. Nothing while it may not.
  std::optional<Fault> evicting;
  std::string run_id;             // another one after every start
  std::uint64_t evicted_keys = 0; // since it started, or since its statistics were reset
  std::uint64_t keys = 0;         // in our database
  std::uint64_t bytes_in_memory = 0;
  std::uint64_t bytes_on_disk = 0;
};

// A fault (`invalid`) when the server cannot be used at all: too old, a replica, of a cluster without being asked as
// one.
Result<Examination> examine(const InfoFields& info, const ServerSettings& settings, const RedisUrl& url,
                            const Host& host);

// How many keys a server has dropped to make room between two looks at it.
std::uint64_t evicted_between(const Examination& before, const Examination& after);

} // namespace oncekey::redis
