// MarkerKeeper: what a gateway makes of the marker and the secret of a shared store, which it reads again and again.
//
// MemoryWatch tells whether the store has forgotten. The secret must stay the one that this gateway was started with:
// ids are keyed with it, and with two secrets two gateways would take one key for two.
#pragma once

#include "base/crypto.h"
#include "base/log.h"
#include "core/store.h"
#include "store/common/memory_watch.h"

#include <oncekey/result.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <string>

namespace oncekey {

// The store as a whole, as it is kept beside the records.
struct SharedStoreMeta {
  Marker marker;
  Secret secret{};
};

// Safe to use from several threads.
class MarkerKeeper {
 public:
  // `store` names the store in the log.
  MarkerKeeper(Log& log, std::string store) : log_(log), store_(std::move(store)) {}

  MemoryWatch memory;
  Secret secret{}; // set when the store is opened, and not changed after

  // What was just read, at a place of the memory's; nothing when it is gone. A fault when memory is lost.
  Status see(std::size_t place, const std::optional<SharedStoreMeta>& meta);

  // Must a loss be written down? A gateway that starts later remembers nothing: without the note it would take an
  // emptied store for a new one and execute everything again.
  bool must_note_loss(const std::optional<SharedStoreMeta>& seen) const {
    return !memory.memory() && !(seen && seen->marker.lost);
  }

  // A fault while claims must be refused: memory is lost, or the store has another secret.
  Status may_claim() const;

  // These log what has changed since the last report. `memory` is what memory.memory() says, or a better reason.
  void report_memory(const Status& memory_now);
  void report_durability(Durability level, const std::string& reason);

 private:
  Log& log_;
  const std::string store_;
  std::atomic<bool> other_secret_ = false;
  std::mutex mutex_;
  bool reported_lost_ = false;
  std::string reported_durability_;
};

} // namespace oncekey
