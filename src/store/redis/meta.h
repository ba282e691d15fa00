// meta: the store as a whole, as it is kept beside the records.
#pragma once

#include "store/common/marker_keeper.h"
#include "store/redis/servers.h"

#include <oncekey/result.h>

#include <functional>
#include <string>

namespace oncekey::redis {

// The layout of keys, markers and records that this version writes.
inline constexpr int kStoreFormat = 1;

// Its marker has no tick: each partition has its own.
struct MetaHash : SharedStoreMeta {
  bool ready = false; // all markers are made
};

std::string new_generation();

// Sends each partition's owner a command and waits for all replies. The first fault, or what `check` objects to.
using EachCommand = std::function<std::string(std::uint32_t partition)>;
using EachCheck = std::function<Status(std::uint32_t partition, RedisReply reply)>;
Task<Status> on_all_partitions(Loop& loop, Servers& servers, std::uint32_t partitions, MonotonicTime deadline,
                               EachCommand make, EachCheck check);

// Reads and writes the meta, at the server of partition 0. On the loop's thread.
class MetaKeeper {
 public:
  MetaKeeper(Loop& loop, Servers& servers, const KeyNames& names, Millis call_timeout)
      : loop_(loop), servers_(servers), names_(names), call_timeout_(call_timeout) {}

  // Creates the store where there is none. Two gateways that start at once end up with the same one.
  Task<Result<MetaHash>> create();
  // Nothing when it is not there.
  Task<Result<std::optional<MetaHash>>> read();
  // Notes a loss for all gateways, unless the meta is no longer as it was `seen`. Writes `ours` if there is none.
  Task<void> note_loss(SharedStoreMeta ours, std::optional<MetaHash> seen);
  // The text of read_identity_note() and write_identity_note() (store/open_store.h).
  Task<Status> read_identity(std::string& text);
  Task<Status> write_identity(std::string expected, std::string next, bool& written);
  // An operator accepts a loss: a new generation that replaces any other.
  Task<Status> accept_loss();

 private:
  Task<Result<OwnedReply>> ask(std::string command);
  Task<Status> make_markers(std::string generation, bool& foreign);
  Task<Status> set(std::string command);

  Loop& loop_;
  Servers& servers_;
  const KeyNames& names_;
  const Millis call_timeout_;
};

} // namespace oncekey::redis
