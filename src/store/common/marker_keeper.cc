#include "store/common/marker_keeper.h"

#include <utility>

namespace oncekey {

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
