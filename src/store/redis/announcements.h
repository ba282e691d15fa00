// Announcements: hears from the servers that records were settled which somebody waits for.
//
// Pub/sub loses what is said while nobody listens, so after every gap the listener is told that anything may have
// happened, once a second while the gap lasts. In a cluster the nodes pass messages on to each other and may lose them
// without our noticing; there the same is said every few seconds as long as somebody waits.
#pragma once

#include "redis/connection.h"
#include "store/redis/servers.h"

#include "core/store.h"

#include <atomic>
#include <memory>
#include <mutex>

namespace oncekey::redis {

class Announcements {
 public:
  Announcements(Loop& loop, Servers& servers, const ConnectionOptions& options, const Url& url, const KeyNames& names,
                Millis call_timeout);

  // From any thread.
  void tell(Store::Listener listener);
  void somebody_waits();

  // On the loop's thread.
  Task<void> run();
  // Until the first attempt to listen is over, so that a store just opened hears what comes after.
  Task<void> until_first_attempt(Deadline deadline);
  void stop();

 private:
  Task<Status> listen(std::shared_ptr<RedisConnection> connection);
  Task<void> stay(std::shared_ptr<RedisConnection> connection);
  void say(const std::optional<RecordId>& settled);
  void say_anything_may_have();

  Loop& loop_;
  Servers& servers_;
  const ConnectionOptions& options_;
  const Url& url_;
  const KeyNames& names_;
  const Millis call_timeout_;
  bool stopped_ = false;
  Notice first_attempt_;
  Notice closed_; // the connection
  std::shared_ptr<RedisConnection> connection_;
  std::atomic<std::int64_t> waiting_until_{0}; // of our steady clock, in milliseconds
  std::mutex mutex_;
  std::shared_ptr<const Store::Listener> listener_; // guarded by mutex_
};

} // namespace oncekey::redis
