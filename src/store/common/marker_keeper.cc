#include "store/common/marker_keeper.h"

#include <fmt/format.h>

#include <utility>

namespace oncekey {

Status MemoryWatch::see(std::size_t place, const std::optional<Marker>& marker) {
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
    return lose(fmt::format("it is at tick {} and was at {}, as after a restored backup or a failover that lost writes",
                            marker->tick, largest));
  }
  largest = marker->tick;
  return ok_status();
}

Status MemoryWatch::memory() const {
  const std::lock_guard lock(mutex_);
  if (lost_) return *lost_;
  return ok_status();
}

std::string MemoryWatch::generation() const {
  const std::lock_guard lock(mutex_);
  return generation_;
}

Status MemoryWatch::lose(std::string what) {
  // The first finding is kept: what is seen later (a new marker, made by a gateway that starts now) follows from it.
  if (!lost_) {
    lost_ = Fault{FaultKind::conflict,
                  "the store has lost its memory: " + std::move(what) +
                      ". Retries of requests it has forgotten would be executed again, so none is executed. Find out "
                      "what was lost, then say so with: oncekey store accept-loss --store URL"};
  }
  return *lost_;
}

Status MarkerKeeper::see(std::size_t place, const std::optional<SharedStoreMeta>& meta) {
  if (!meta) return memory.see(place, std::nullopt);
  const bool other = meta->secret != secret;
  other_secret_ = other;
  // A loss was accepted, but not for this gateway.
  if (other && meta->marker.replaces == kReplacesAny) return memory.memory();
  return memory.see(place, meta->marker);
}

Status MarkerKeeper::may_claim() const {
  if (other_secret_.load()) {
    return unavailable("the store at " + store_ +
                       " was created anew with another secret, so that this gateway and new ones would not recognise "
                       "each other's keys: restart this gateway");
  }
  return memory.memory();
}

void MarkerKeeper::report_memory(const Status& memory_now) {
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

void MarkerKeeper::report_durability(Durability level, const std::string& reason) {
  const std::string shown = std::string(to_string(level)) + " " + reason;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(reported_durability_, shown) == shown) return;
  }
  log_.info("durability", {{"store", store_}, {"level", to_string(level)}, {"reason", reason}});
}

} // namespace oncekey
