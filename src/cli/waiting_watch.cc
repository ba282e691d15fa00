#include "cli/waiting_watch.h"

#include <algorithm>
#include <utility>

namespace oncekey {
namespace {

constexpr std::chrono::milliseconds kPoll{500};
// Counting takes at most one part in so many of the time, however large the store is.
constexpr int kShareOfTime = 20;

} // namespace

WaitingWatch::WaitingWatch(GatewayShared& shared, Loop& timers) : shared_(shared), timer_(timers, [this] { look(); }) {
  look();
}

void WaitingWatch::look() {
  timer_.after(kPoll);
  const MonotonicTime now = std::chrono::steady_clock::now();
  take_answer(now);
  {
    const std::lock_guard lock(inbox_->mutex);
    if (inbox_->asked || now < ask_again_) return;
    inbox_->asked = true;
  }
  asked_at_ = now;
  // The answer may come after this object is destroyed: the callback owns the place where it leaves it.
  shared_.store.count_waiting([inbox = inbox_](const Result<WaitingKeys>& counted) {
    const std::lock_guard lock(inbox->mutex);
    inbox->asked = false;
    if (counted) inbox->counted = *counted;
  });
  take_answer(std::chrono::steady_clock::now()); // an embedded store has it at once
}

void WaitingWatch::take_answer(MonotonicTime now) {
  std::optional<WaitingKeys> counted;
  {
    const std::lock_guard lock(inbox_->mutex);
    if (!inbox_->asked) ask_again_ = std::max(ask_again_, asked_at_ + kEvery);
    counted = std::exchange(inbox_->counted, std::nullopt);
  }
  if (!counted) return;
  ask_again_ = std::max(asked_at_ + kEvery, now + kShareOfTime * (now - asked_at_ - kPoll));
  shared_.metrics.keys_abandoned.Set(static_cast<double>(counted->abandoned));
  shared_.metrics.keys_indeterminate.Set(static_cast<double>(counted->indeterminate));
  say(*counted, now);
}

void WaitingWatch::say(const WaitingKeys& counted, MonotonicTime now) {
  said_.abandoned = std::min(said_.abandoned, counted.abandoned);
  said_.indeterminate = std::min(said_.indeterminate, counted.indeterminate);
  if (counted == said_ || now < say_again_) return;
  said_ = counted;
  say_again_ = now + kSaidEvery;
  shared_.log.warning("keys_waiting", {{"abandoned", counted.abandoned},
                                       {"indeterminate", counted.indeterminate},
                                       {"meaning", "whether these requests were executed is not known"},
                                       {"next", "oncekey keys list --state waiting"}});
}

} // namespace oncekey
