#include "store/common/memory_watch.h"

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
  // The first sight tells most; what follows (a new marker made by a gateway that starts now) is a consequence.
  if (!lost_) {
    lost_ = Fault{FaultKind::conflict,
                  "the store has lost its memory: " + std::move(what) +
                      ". Retries of requests it has forgotten would be executed again, so none is executed. Find out "
                      "what was lost, then say so with: oncekey store accept-loss --store URL"};
  }
  return *lost_;
}

} // namespace oncekey
