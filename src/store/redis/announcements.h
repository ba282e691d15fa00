// Announcements: subscribes to the channel on which servers announce that an awaited record was settled.
//
// Messages that are published while this gateway is not subscribed are lost. After every gap the listener is therefore
// called without an id, and once a second while the gap lasts: any record may have been settled. The nodes of a cluster
// pass messages on to each other and may lose some without a sign; there the same call is made every two seconds while
// a request waits.
#pragma once

#include "store/redis/servers.h"

#include <atomic>
#include <mutex>

namespace oncekey::redis {

class Announcements {
 public:
  Announcements(StoreState& state, Servers& servers)
      : state_(state), servers_(servers), first_attempt_(state.loop), closed_(state.loop) {}

  // From any thread.
  void tell(Store::Listener listener);
  void note_waiter();

  // On the loop's thread.
  Task<void> run();
  // Until the first attempt to subscribe is over, so that a store just opened hears what comes after.
  auto until_first_attempt(MonotonicTime deadline) { return first_attempt_.wait_until(deadline); }
  void stop();

 private:
  Task<void> stay(std::shared_ptr<RedisConnection> connection);
  void say(const std::optional<RecordId>& settled);
  void say_any_may_be_settled();

  StoreState& state_;
  Servers& servers_;
  bool stopped_ = false;
  Notice first_attempt_;
  Notice closed_; // the connection
  std::shared_ptr<RedisConnection> connection_;
  std::atomic<MonotonicTime> waiting_until_{}; // a request waits until then
  std::mutex mutex_;
  Store::Listener listener_; // guarded by mutex_
};

} // namespace oncekey::redis
