// Link: keeps one server connected, for as long as it is wanted.
//
// Connects, has the connection prepared by its owner (scripts loaded, server examined), and is then ready. When the
// connection is lost it starts again, after a pause that grows and is drawn at random. While it is not ready, it says
// why.
#pragma once

#include "redis/connection.h"
#include "store/common/backoff.h"
#include "store/redis/script_call.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace oncekey::redis {

// What a link needs of its owner. Called on the loop's thread.
class LinkOwner {
 public:
  virtual ~LinkOwner() = default;
  // A connection that was just opened, before anything else is sent on it.
  virtual Task<Status> prepare(const std::shared_ptr<RedisConnection>& connection) = 0;
  virtual void link_ready(const Host& host) = 0;
  virtual void link_lost(const Host& host, const std::string& why) = 0;
};

class Link : public std::enable_shared_from_this<Link> {
 public:
  // `number` is the server's in Store::server_of.
  Link(Loop& loop, Host host, std::uint8_t number, const ConnectionOptions& options, Millis connect_timeout,
       LinkOwner& owner);

  void start();
  // Closes the connection; the owner is not called any more.
  void stop();

  const Host& host() const { return host_; }
  std::uint8_t number() const { return number_; }
  bool is_ready() const { return ready_; }
  // The first attempt to connect is still under way.
  bool is_new() const { return !ready_ && !why_not_; }
  Fault why_not() const;
  const std::shared_ptr<RedisConnection>& connection() const { return connection_; }

  CallQueue<ScriptCall> queue;
  int groups = 0;         // of calls under way
  bool gathering = false; // a timer runs until the batch delay is over
  // The partition whose marker stands for this server's memory; the same for as long as it has it.
  std::optional<std::uint32_t> marked;

 private:
  Task<void> keep();
  Task<Status> attempt();

  Loop& loop_;
  const Host host_;
  const std::uint8_t number_;
  const ConnectionOptions& options_;
  const Millis connect_timeout_;
  LinkOwner* owner_; // null once stopped
  std::shared_ptr<RedisConnection> connection_;
  bool ready_ = false;
  std::optional<Fault> why_not_;
  Backoff pauses_;
  Notice wake_; // the connection closed, or stop()
};

} // namespace oncekey::redis
