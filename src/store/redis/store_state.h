// StoreState: what the parts of a store share: its settings, its loop, and what is known of it as a whole.
#pragma once

#include "redis/connection.h"
#include "store/common/marker_keeper.h"
#include "store/common/server_clock.h"
#include "store/redis/examination.h"
#include "store/redis/redis_store.h"
#include "store/redis/slots.h"

#include <atomic>
#include <map>
#include <mutex>

namespace oncekey::redis {

// Hands over what a task ends with.
template <class Answer, class Told>
Task<void> then(Task<Answer> task, Told told) {
  Answer answer = co_await std::move(task);
  told(std::move(answer));
}

// Runs the task that `start` makes on the loop's thread. From any thread.
template <class Start, class Told>
void run_on(Loop& loop, Start start, Told told) {
  loop.post([start = std::move(start), told = std::move(told)]() mutable { spawn(then(start(), std::move(told))); });
}

// From every thread, the loop apart.
class StoreState {
 public:
  StoreState(const RedisOptions& options, RedisUrl from, ConnectionOptions with)
      : log(options.log),
        url(std::move(from)),
        connections(std::move(with)),
        call_timeout(url.call_timeout.value_or(options.call_timeout)),
        test_clock(options.clock),
        names(url.prefix, url.cluster ? kClusterPartitions : 1),
        marker(log, to_string(url.hosts.front())) {}

  Log& log;
  const RedisUrl url;
  const ConnectionOptions connections;
  const Millis call_timeout;
  const std::function<Time()> test_clock; // null for the servers'
  const KeyNames names;
  Loop loop;
  MarkerKeeper marker;
  ServerClock clock;

  Time now() const { return test_clock ? test_clock() : clock.now(); }
  // Of a command that is sent now.
  MonotonicTime deadline() const { return Clock::now() + call_timeout; }

  // A fault while memory is lost, with the best reason that is known.
  Status remembers() const;

  // A fault while claims must be refused: memory was lost, a server may drop records, the store is another one now.
  Status may_claim() const;

  // A server that has dropped keys since the last look at it has lost memory, whatever its policy is by now.
  void examined(const Host& host, const Examination& found);
  // Servers that are no longer part of it do not count any more.
  void keep_only(const std::vector<Host>& hosts);
  // Why no server can be reached; nothing while one can.
  void reachable(const Status& status);
  Status healthy() const;

  // The lowest of all servers.
  Durability durability() const { return durability_.load(); }
  std::string durability_reason() const;
  StoreStats stats() const;

  std::atomic<std::uint64_t> batches{0};
  std::atomic<std::uint64_t> calls{0};

 private:
  struct Examined {
    Examination found;
    std::string generation; // in use at the time; empty before the store was found
  };
  struct Evicted {
    std::string generation; // that lost its records by it
    Fault fault;
  };
  void sum_up();
  void note_evicted(const Host& host, std::uint64_t keys, const std::string& generation);

  mutable std::mutex mutex_;
  std::map<Host, Examined> examinations_;
  std::optional<Evicted> evicted_;
  std::optional<Fault> evicting_;
  std::optional<Fault> unreachable_;
  std::string durability_reason_;
  std::atomic<bool> is_evicting_{false};
  std::atomic<Durability> durability_{Durability::none};
};

} // namespace oncekey::redis
