// MarkerKeeper: what a gateway makes of the marker and the secret of a shared store, which it reads again and again.
//
// MemoryWatch tells whether the store has forgotten. The secret must stay the one that this gateway was started with:
// ids are keyed with it, and with two secrets two gateways would take one key for two.
#pragma once

#include "base/crypto.h"
#include "base/log.h"
#include "core/store.h"
#include "store/common/kept_secret.h"

#include <oncekey/result.h>

#include <atomic>
#include <map>
#include <mutex>

namespace oncekey {

struct Marker {
  // Random, made when the store was created.
  std::string generation;
  // The generation whose loss an operator accepted when this one was made; "*" for whatever was lost.
  std::string replaces;
  std::uint64_t tick = 0;
  // A gateway has noticed a loss that no operator has accepted yet: gateways that start now must refuse claims as well.
  bool lost = false;
};

inline constexpr std::string_view kReplacesAny = "*";

// MemoryWatch: notices that a shared store has forgotten.
//
// A flushed Redis, a restored backup or a failover to a replica that lagged behind looks like a store that is well and
// merely empty, or a little younger: every retry of what it forgot would be executed a second time. So each store keeps
// a marker: the generation it was created with, and a tick that its gateways count up about once a second. A gateway
// that finds the marker gone, of another generation, or with a smaller tick than it has seen, knows that memory was
// lost.
//
// From then on claims are refused until an operator has looked and said so (`oncekey store accept-loss`), which writes
// a marker that replaces the one before. Nothing else makes up for what is gone: the operator knows which payments to
// check, the gateway does not.
//
// Safe to use from several threads.
class MemoryWatch {
 public:
  // What was just read of the marker at `place`: a store that is spread over several servers has one for each part, all
  // of one generation with ticks of their own. Nothing when there is none.
  // A fault, the same as memory() gives from now on, when this shows that memory was lost.
  Status see(std::size_t place, const std::optional<Marker>& marker) {
    const std::lock_guard lock(mutex_);
    if (!marker) return lose("its marker is gone, as after FLUSHALL or in an emptied database");
    if (generation_.empty()) generation_ = marker->generation;
    if (marker->lost) return lose("another gateway has noticed the loss");
    if (marker->generation != generation_) {
      if (marker->replaces != generation_ && marker->replaces != kReplacesAny) {
        return lose(fmt::format("it is of generation {} and was of {}, as when it was created anew", marker->generation,
                                generation_));
      }
      // An operator has accepted the loss of what we knew.
      generation_ = marker->generation;
      ticks_.clear();
      lost_.reset();
    }
    if (lost_) return *lost_;
    std::uint64_t& largest = ticks_[place];
    if (marker->tick < largest) {
      return lose(
          fmt::format("it is at tick {} and was at {}, as after a restored backup or a failover that lost writes",
                      marker->tick, largest));
    }
    largest = marker->tick;
    return ok_status();
  }

  // A fault that says what was lost and what to do, until a marker is seen that makes up for it.
  Status memory() const {
    const std::lock_guard lock(mutex_);
    if (lost_) return *lost_;
    return ok_status();
  }

  // The generation in use; empty before the first marker was seen.
  std::string generation() const {
    const std::lock_guard lock(mutex_);
    return generation_;
  }

 private:
  Status lose(std::string what) {
    // The first finding is kept: what is seen later (a new marker, made by a gateway that starts now) follows from it.
    if (!lost_) {
      lost_ = Fault{FaultKind::conflict,
                    "the store has lost its memory: " + std::move(what) +
                        ". Retries of requests it has forgotten would be executed again, so none is executed. Find out "
                        "what was lost, then say so with: oncekey store accept-loss --store URL"};
    }
    return *lost_;
  }

  mutable std::mutex mutex_;
  std::string generation_;
  std::map<std::size_t, std::uint64_t> ticks_; // the largest seen at each place
  std::optional<Fault> lost_;
};

// The store as a whole, as it is kept beside the records.
struct SharedStoreMeta {
  Marker marker;
  KeptSecret secret;
};

// Safe to use from several threads.
class MarkerKeeper {
 public:
  // `store` names the store in the log.
  MarkerKeeper(Log& log, std::string store, const Sealer* seals) : sealer(seals), log_(log), store_(std::move(store)) {}

  MemoryWatch memory;
  const Sealer* const sealer; // of the secret; null where it is kept in clear
  Secret secret{};            // set when the store is opened, and not changed after

  // What was just read, at a place of the memory's; nothing when it is gone. A fault when memory is lost.
  Status see(std::size_t place, const std::optional<SharedStoreMeta>& meta) {
    if (!meta) return memory.see(place, std::nullopt);
    const bool other = !meta->secret.is_of(secret);
    other_secret_ = other;
    // A loss was accepted, but not for this gateway.
    if (other && meta->marker.replaces == kReplacesAny) return memory.memory();
    return memory.see(place, meta->marker);
  }

  // Must a loss be written down? A gateway that starts later remembers nothing: without the note it would take an
  // emptied store for a new one and execute everything again.
  bool must_note_loss(const std::optional<SharedStoreMeta>& seen) const {
    return !memory.memory() && !(seen && seen->marker.lost);
  }

  // Must the secret, as it was just read, be sealed anew? Another secret than ours is another gateway's to seal.
  bool must_reseal(const KeptSecret& seen) const {
    return sealer != nullptr && sealer->may_reseal() && seen.is_of(secret) && seen.must_be_resealed(sealer);
  }

  // A fault while claims must be refused: memory is lost, or the store has another secret.
  Status may_claim() const {
    if (other_secret_.load()) {
      return unavailable("the store at " + store_ +
                         " was created anew with another secret, so that this gateway and new ones would not recognise "
                         "each other's keys: restart this gateway");
    }
    return memory.memory();
  }

  // These log what has changed since the last report. `memory` is what memory.memory() says, or a better reason.
  void report_memory(const Status& memory_now) {
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(reported_lost_, !memory_now) == !memory_now) return;
    }
    if (memory_now) {
      log_.warning("memory_loss_accepted", {{"store", store_}, {"generation", memory.generation()}});
    } else {
      log_.error("memory_lost", {{"store", store_}, {"reason", memory_now.fault().message}});
    }
  }
  void report_durability(Durability level, const std::string& reason) {
    const std::string shown = std::string(to_string(level)) + " " + reason;
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(reported_durability_, shown) == shown) return;
    }
    log_.info("durability", {{"store", store_}, {"level", to_string(level)}, {"reason", reason}});
  }

 private:
  Log& log_;
  const std::string store_;
  std::atomic<bool> other_secret_ = false;
  std::mutex mutex_;
  bool reported_lost_ = false;
  std::string reported_durability_;
};

} // namespace oncekey
