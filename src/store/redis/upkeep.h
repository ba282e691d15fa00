// Upkeep: what is checked at every new connection, before the first call on it, and regularly after that.
//
//   every second         the marker of each server is counted up and compared; the meta of the store is read
//   every five seconds   the settings of each server are examined
#pragma once

#include "base/log.h"
#include "store/redis/dispatcher.h"
#include "store/redis/examination.h"
#include "store/redis/meta.h"
#include "store/redis/servers.h"
#include "store/redis/store_state.h"

#include <memory>

namespace oncekey::redis {

class Upkeep {
 public:
  Upkeep(Loop& loop, Log& log, const RedisUrl& url, Servers& servers, Dispatcher& dispatcher, MetaKeeper& meta,
         StoreState& state, const KeyNames& names, Millis call_timeout);

  // A connection that was just opened.
  Task<Status> prepare(std::shared_ptr<RedisConnection> connection);
  // Creates or finds the store, once the servers are there.
  Task<Status> adopt_store();
  Task<void> run();
  // Reads the meta now instead of at the next second: it may have changed.
  void look_again();
  void stop();

 private:
  Task<Status> examine_server(std::shared_ptr<RedisConnection> connection);
  Task<std::optional<std::string>> setting(std::shared_ptr<RedisConnection> connection, std::string_view name);
  Task<void> look_at_meta();
  void see_meta(const std::optional<MetaHash>& meta);
  void tick_all();
  Task<void> tick_server(std::shared_ptr<RedisConnection> connection, std::uint32_t partition);
  void examine_all();
  Task<void> examine_again(std::shared_ptr<RedisConnection> connection);
  void say_what_changed();

  Loop& loop_;
  Log& log_;
  const RedisUrl& url_;
  Servers& servers_;
  Dispatcher& dispatcher_;
  MetaKeeper& meta_;
  StoreState& state_;
  const KeyNames& names_;
  const Millis call_timeout_;
  bool stopped_ = false;
  Notice look_wanted_;
};

} // namespace oncekey::redis
