// StoreState: what is known of the store as a whole, from every thread.
#pragma once

#include "base/crypto.h"
#include "core/store.h"
#include "redis/connection.h"
#include "store/common/memory_watch.h"
#include "store/redis/examination.h"

#include <oncekey/result.h>

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <optional>

namespace oncekey::redis {

// The server's clock, estimated between its answers.
class ServerClock {
 public:
  void learn(Time server_now);
  Time now() const;

 private:
  // An answer is as old as its way back, so the largest difference is the truest. Looked for in stretches, since the
  // server's clock may be set back.
  static constexpr Millis kStretch{10'000};
  mutable std::mutex mutex_;
  Millis difference_{};      // server's clock minus ours, of this stretch
  Millis last_difference_{}; // and the one before
  Deadline stretch_ends_{};
};

class StoreState {
 public:
  MemoryWatch memory;
  ServerClock clock;
  Secret secret{}; // set when the store is opened, and not changed after

  // A fault while memory is lost, with the best reason that is known.
  Status remembers() const;

  // A fault while claims must be refused: memory was lost, a server may drop records, the store is another one now.
  Status may_claim() const;

  // A server that has dropped keys since the last look at it has lost memory, whatever its policy is by now.
  void examined(const Host& host, const Examination& found);
  // Servers that are no longer part of it do not count any more.
  void keep_only(const std::vector<Host>& hosts);
  void store_is_another(std::optional<Fault> fault);
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
  std::optional<Fault> another_store_;
  std::optional<Fault> unreachable_;
  std::string durability_reason_;
  std::atomic<bool> troubled_{false}; // evicting_ or another_store_
  std::atomic<Durability> durability_{Durability::none};
};

} // namespace oncekey::redis
