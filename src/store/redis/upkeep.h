// Upkeep: what is checked at every new connection, before the first call on it, and regularly after that.
//
//   every second         the marker of each server is counted up and compared; the meta of the store is read
//   every five seconds   the settings of each server are examined
#pragma once

#include "store/redis/dispatcher.h"
#include "store/redis/meta.h"

namespace oncekey::redis {

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
  void tick_all();
  void examine_all();
  void say_what_changed();

  StoreState& state_;
  Servers& servers_;
  Dispatcher& dispatcher_;
  bool stopped_ = false;
  Notice look_wanted_;
};

} // namespace oncekey::redis
