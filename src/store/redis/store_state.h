// StoreState: what is known of the store as a whole, from every thread.
#pragma once

#include "base/crypto.h"
#include "core/store.h"
#include "redis/connection.h"
#include "store/common/marker_keeper.h"
#include "store/common/server_clock.h"
#include "store/redis/examination.h"

#include <oncekey/result.h>

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <optional>

namespace oncekey::redis {

class StoreState {
 public:
  StoreState(Log& log, std::string store) : marker(log, std::move(store)) {}

  MarkerKeeper marker;
  ServerClock clock;

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
