// StoreState: what the parts of a store share: its settings, its loop, and what is known of it as a whole.
//
// The settings of its servers say how durable it is:
//
//   power     appendonly yes, appendfsync always, no-appendfsync-on-rewrite no: synced before it is answered
//   process   appendonly yes, appendfsync no, or always with no-appendfsync-on-rewrite yes: written to the kernel
//   before
//             it is answered, so that a killed server has lost nothing, and a power cut takes what was not yet synced
//   none      everything else. `appendfsync everysec` belongs here: while its background sync runs, the server holds
//             writes back for up to two seconds and answers all the same, and a kill at that moment loses them. With
//             snapshots alone it loses what came after the last one.
#pragma once

#include "redis/connection.h"
#include "store/common/marker_keeper.h"
#include "store/common/server_clock.h"
#include "store/redis/redis_store.h"
#include "store/redis/slots.h"

#include <atomic>
#include <map>
#include <mutex>

namespace oncekey::redis {

// INFO's "name:value" lines.
using InfoFields = std::map<std::string, std::string, std::less<>>;
InfoFields parse_info(std::string_view text);

// As CONFIG GET tells; nothing where it is forbidden or unknown.
struct ServerSettings {
  std::optional<std::string> appendfsync;
  std::optional<std::string> no_appendfsync_on_rewrite;
  std::optional<std::string> maxmemory_policy;
};

struct Examination {
  Durability durability = Durability::none;
  // Why this level and not a higher one, and what to change.
  std::string why;
  // The server may drop records to make room: claims must be refused. Nothing while it may not.
  std::optional<Fault> evicting;
  std::string run_id;             // another one after every start
  std::uint64_t evicted_keys = 0; // since it started, or since its statistics were reset
  std::uint64_t keys = 0;         // in our database
  std::uint64_t bytes_in_memory = 0;
  std::uint64_t bytes_on_disk = 0;
};

// A fault (`invalid`) when the server cannot be used at all: too old, a replica, of a cluster without being asked as
// one.
Result<Examination> examine(const InfoFields& info, const ServerSettings& settings, const RedisUrl& url,
                            const Host& host);

// How many keys a server has dropped to make room between two looks at it.
std::uint64_t evicted_between(const Examination& before, const Examination& after);

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
  StoreState(const RedisOptions& options, ConnectionOptions with)
      : log(options.log),
        connections(std::move(with)),
        test_clock(options.clock),
        names(url.prefix, url.cluster ? kClusterPartitions : 1),
        marker(log, to_string(url.hosts.front()), options.sealer) {}

  Log& log;
  const ConnectionOptions connections;
  const RedisUrl& url = connections.url;
  const std::function<Time()> test_clock; // null for the servers'
  const KeyNames names;
  Loop loop;
  MarkerKeeper marker;
  ServerClock clock;

  Time now() const { return test_clock ? test_clock() : clock.now(); }
  // Of a command that is sent now.
  MonotonicTime deadline() const { return Clock::now() + connections.call_timeout; }

  // A fault while memory is lost, with the best reason that is known.
  Status remembers() const;

  // A fault while claims must be refused: memory was lost, a server may drop records, the store is another one now.
  Status may_claim() const;

  // A server that has dropped keys since the last look at it has lost memory, whatever its policy is by now.
  void examined(const Host& host, const Examination& found);
  // Servers that are no longer part of it do not count any more.
  void keep_only(const std::vector<Host>& hosts);
  // Why no server can be reached; nothing while one can.
  void reachable(Status status);
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

  mutable std::mutex mutex_;
  std::map<Host, Examined> examinations_;
  std::optional<Evicted> evicted_;
  Status keeps_all_ = ok_status(); // a fault while a server may drop records
  Status reachable_ = ok_status();
  std::string durability_reason_;
  std::atomic<bool> is_evicting_{false};
  std::atomic<Durability> durability_{Durability::none};
};

} // namespace oncekey::redis
