// Upkeep: what has to be looked at again and again, and at every new connection.
//
//   every second   the marker of each server is counted up and compared, and the store's own word on itself is read
//   every five     the settings of each server are examined
//
// The first look at a server comes before the first call to it.
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
  Upkeep(Loop& loop, Log& log, const Url& url, Servers& servers, Dispatcher& dispatcher, MetaKeeper& meta,
         StoreState& state, const KeyNames& names, Millis call_timeout);

  // A connection that was just opened.
  Task<Status> prepare(std::shared_ptr<RedisConnection> connection);
  // Creates or finds the store, once the servers are there.
  Task<Status> adopt_store();
  Task<void> run();
  // The store may have been changed: do not wait for the next second.
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
  const Url& url_;
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
