#include "net/timers.h"

#include <utility>

namespace oncekey {

Timer::Timer(Timers& timers, std::function<void()> fire) : fire_(std::move(fire)) { timers.timers_.push_back(*this); }

Timers::Timers(asio::io_context& context) : context_(context), ticker_(context) { tick(); }

void Timers::stop() {
  stopped_ = true;
  ticker_.cancel();
}

void Timers::tick() {
  ticker_.expires_after(kTimerTick);
  ticker_.async_wait([this](const error_code& ec) {
    if (ec || stopped_) return;
    walk(std::chrono::steady_clock::now());
    tick();
  });
}

void Timers::walk(MonotonicTime now) {
  // What fires may destroy any other timer or make new ones: the due ones are set aside first, and each unlinks itself
  // from wherever it is when it goes.
  List due;
  for (auto it = timers_.begin(); it != timers_.end();) {
    Timer& timer = *it;
    ++it;
    if (timer.due_ > now) continue;
    timer.unlink();
    due.push_back(timer);
  }
  while (!due.empty()) {
    Timer& timer = due.front();
    timer.unlink();
    timers_.push_back(timer);
    timer.clear();
    // A copy, because firing may destroy the timer and the function with it.
    const std::function<void()> fire = timer.fire_;
    fire();
  }
}

} // namespace oncekey
