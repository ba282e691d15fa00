// MetaKeeper: reads and writes the store as a whole, as it is kept beside the records: at the server of partition 0.
#pragma once

#include "store/redis/servers.h"

namespace oncekey::redis {

// Its marker has no tick: each partition has its own.
struct MetaHash : SharedStoreMeta {
  bool ready = false; // all markers are made
};

// On the loop's thread.
class MetaKeeper {
 public:
  explicit MetaKeeper(Servers& servers) : servers_(servers), names_(servers.store().names) {}

  // Creates the store where there is none. Two gateways that start at once end up with the same one.
  Task<Result<MetaHash>> create();
  // Nothing when it is not there.
  Task<Result<std::optional<MetaHash>>> read();
  // Notes a loss for all gateways, unless the meta is no longer as it was `seen`. Writes `ours` if there is none.
  Task<void> note_loss(SharedStoreMeta ours, std::optional<MetaHash> seen);
  // The text of read_identity_note() and write_identity_note() (store/open_store.h).
  Task<Result<std::string>> read_identity();
  Task<Result<bool>> write_identity(std::string expected, std::string next);
  // An operator accepts a loss: a new generation that replaces any other.
  Task<Status> accept_loss();

 private:
  Task<Result<OwnedReply>> ask(std::string command);
  template <class... Words>
  Task<Result<OwnedReply>> ask(std::string_view first, const Words&... words) {
    return ask(command({first, words...}));
  }

  Servers& servers_;
  const KeyNames& names_;
};

} // namespace oncekey::redis
