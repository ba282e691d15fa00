// Upkeep: what is checked at every new connection, before the first call on it, and regularly after that.
//
//   every second         the marker of each server is counted up and compared; the meta of the store is read
//   every five seconds   the settings of each server are examined
#pragma once

#include "store/common/store_note.h"
#include "store/redis/dispatcher.h"

namespace oncekey::redis {

// Its marker has no tick: each partition has its own.
struct MetaHash : SharedStoreMeta {
  bool ready = false; // all markers are made
};

// Reads and writes the store as a whole, as it is kept beside the records: at the server of partition 0. On the loop's
// thread.
class MetaKeeper {
 public:
  explicit MetaKeeper(Servers& servers) : servers_(servers), names_(servers.store().names) {}

  // Creates the store where there is none. Two gateways that start at once end up with the same one.
  Task<Result<MetaHash>> create();
  // Nothing when it is not there.
  Task<Result<std::optional<MetaHash>>> read();
  // Notes a loss for all gateways, unless the meta has no longer the generation that was `seen` of it. Writes it as
  // this gateway knows it if there is none.
  Task<void> note_loss(std::string seen);
  // Seals the secret with the newest key, if it is still kept as it was seen.
  Task<void> reseal(KeptSecret seen);
  // The same for a store that is not open: reads the secret first.
  Task<Status> reseal_with(const Sealer& sealer);
  // Whether a gateway has made the store.
  Task<Result<bool>> exists();
  // read_store_note() and write_store_note() (store/open_store.h), each note in a field of its own.
  Task<Result<std::string>> read_note(StoreNote note);
  Task<Result<bool>> write_note(StoreNote note, std::string expected, std::string next);
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

class Upkeep {
 public:
  Upkeep(StoreState& state, Servers& servers, Dispatcher& dispatcher)
      : meta(servers), state_(state), servers_(servers), dispatcher_(dispatcher), look_wanted_(state.loop) {}

  MetaKeeper meta;

  // Its connection was just opened, and nothing else is sent on it before.
  Task<Status> prepare(Link& link);
  void link_ready(const Host& host);
  void link_lost(const Host& host, const std::string& why);
  // Creates or finds the store, once the servers are there.
  Task<Status> adopt_store();
  Task<void> run();
  // Reads the meta now instead of at the next second: it may have changed.
  void look_again() { look_wanted_.give(); }
  void stop();

 private:
  Task<Status> examine_server(std::shared_ptr<RedisConnection> connection);
  Task<void> look_at_meta();
  void see_meta(const std::optional<MetaHash>& found);
  // With every tick, and with some of them the settings are examined.
  enum class Settings { leave, examine };
  void check_all(Settings settings);
  void say_what_changed();

  StoreState& state_;
  Servers& servers_;
  Dispatcher& dispatcher_;
  bool stopped_ = false;
  Notice look_wanted_;
};

} // namespace oncekey::redis
