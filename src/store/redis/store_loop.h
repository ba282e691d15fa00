// StoreLoop: the loop's thread with everything on it, from opening to closing.
#pragma once

#include "base/log.h"
#include "store/redis/announcements.h"
#include "store/redis/dispatcher.h"
#include "store/redis/meta.h"
#include "store/redis/redis_store.h"
#include "store/redis/servers.h"
#include "store/redis/store_state.h"
#include "store/redis/upkeep.h"

#include <memory>
#include <thread>

namespace oncekey::redis {

class StoreLoop final : private LinkOwner {
 public:
  // Reads what the URL points to (password, certificates); connects to nothing yet.
  static Result<std::unique_ptr<StoreLoop>> make(const RedisOptions& options);
  ~StoreLoop() override;

  // Blocks until the servers are there and the store is created or found.
  Status open_store();
  // Blocks until the servers are there and the loss is accepted.
  Status accept_loss();
  // Blocks until the servers are there and were examined.
  Status reach();
  // Blocks until the servers are there, for the text of read_identity_note() and write_identity_note().
  Status read_identity(std::string& text);
  Status write_identity(const std::string& expected, const std::string& next, bool& written);

  Loop& loop() { return loop_; }
  StoreState& state() { return state_; }
  Dispatcher& dispatcher() { return dispatcher_; }
  Announcements& announcements() { return announcements_; }
  Servers& servers() { return servers_; }
  const KeyNames& names() const { return names_; }
  Time now() const { return clock_ ? clock_() : state_.clock.now(); }

 private:
  StoreLoop(const RedisOptions& options, RedisUrl url, ConnectionOptions connections);

  Task<Status> prepare(const std::shared_ptr<RedisConnection>& connection) override;
  void link_ready(const Host& host) override;
  void link_lost(const Host& host, const std::string& why) override;

  Task<Status> open_on_loop();
  Task<Status> accept_on_loop();
  Task<Status> reach_on_loop();
  Task<Status> read_identity_on_loop(std::string& text);
  Task<Status> write_identity_on_loop(std::string expected, std::string next, bool& written);
  // Runs the task that `start` makes on the loop's thread.
  template <class Start>
  Status block_on(Start start);

  Log& log_;
  const RedisUrl url_;
  const Millis call_timeout_;
  const std::function<Time()> clock_;
  const KeyNames names_;
  const ConnectionOptions connection_options_;
  // Above all that lives on it, so that it goes last.
  Loop loop_;
  StoreState state_;
  Servers servers_;
  MetaKeeper meta_;
  Dispatcher dispatcher_;
  Upkeep upkeep_;
  Announcements announcements_;
  std::thread thread_;
};

} // namespace oncekey::redis
