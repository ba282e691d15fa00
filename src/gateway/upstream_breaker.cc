#include "gateway/upstream_breaker.h"

#include <algorithm>

namespace oncekey {

UpstreamBreaker::Pass::~Pass() {
  if (breaker_ != nullptr && trial_) breaker_->trial_is_over();
}

bool UpstreamBreaker::Pass::reached() {
  UpstreamBreaker* const breaker = std::exchange(breaker_, nullptr);
  return breaker != nullptr && breaker->reached();
}

bool UpstreamBreaker::Pass::not_reached(Instant now) {
  UpstreamBreaker* const breaker = std::exchange(breaker_, nullptr);
  return breaker != nullptr && breaker->not_reached(now, trial_);
}

std::optional<UpstreamBreaker::Pass> UpstreamBreaker::ask(Instant now) {
  if (!open_.load(std::memory_order_relaxed)) return Pass(*this, false);
  const std::lock_guard lock(mutex_);
  if (!open_) return Pass(*this, false);
  if (on_trial_ || now < open_until_) return std::nullopt;
  on_trial_ = true;
  return Pass(*this, true);
}

std::chrono::seconds UpstreamBreaker::retry_after(Instant now) const {
  const std::lock_guard lock(mutex_);
  const auto left = std::chrono::ceil<std::chrono::seconds>(std::max(open_until_ - now, Instant::duration{}));
  return std::max(left, std::chrono::seconds(1));
}

bool UpstreamBreaker::reached() {
  if (!failing_.load(std::memory_order_relaxed)) return false;
  const std::lock_guard lock(mutex_);
  failures_ = 0;
  on_trial_ = false;
  failing_ = false;
  return open_.exchange(false);
}

bool UpstreamBreaker::not_reached(Instant now, bool trial) {
  if (options_.failures == 0) return false;
  const std::lock_guard lock(mutex_);
  failing_ = true;
  if (open_) {
    // Calls from before it opened fail late and say nothing new.
    if (!trial) return false;
    on_trial_ = false;
    open_until_ = now + options_.pause;
    return false;
  }
  // A failure now and then is not a row of them.
  if (failures_ == 0 || now - first_failure_ > options_.window) {
    failures_ = 0;
    first_failure_ = now;
  }
  if (++failures_ < options_.failures) return false;
  open_until_ = now + options_.pause;
  on_trial_ = false;
  open_ = true;
  return true;
}

void UpstreamBreaker::trial_is_over() {
  const std::lock_guard lock(mutex_);
  on_trial_ = false;
}

} // namespace oncekey
