#include "store/common/breaker.h"

namespace oncekey {

std::optional<Fault> Breaker::open_because() const {
  if (!is_open()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return reason_;
}

void Breaker::succeeded() {
  if (failures_.load(std::memory_order_relaxed) == 0 && !open_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  failures_.store(0, std::memory_order_relaxed);
  open_.store(false, std::memory_order_release);
  reason_.reset();
}

bool Breaker::failed(const Fault& fault) {
  const std::lock_guard lock(mutex_);
  reason_ = fault;
  if (failures_.fetch_add(1, std::memory_order_relaxed) + 1 < kFailuresToOpen) return false;
  return !open_.exchange(true, std::memory_order_acq_rel);
}

} // namespace oncekey
