// await_store: from a store's callback to a coroutine.
//
// A store answers on any thread, sometimes before the call returns. The coroutine goes on on its own thread; when the
// answer was there at once (a replay, usually) it does not even suspend.
#pragma once

#include "net/loop.h"

#include <oncekey/result.h>

namespace oncekey {

// One call to a store, awaited. Lives in the coroutine's frame. The answer and the suspension race: the second of them
// lets the coroutine go on, and neither touches this object after that.
template <class T, class Start>
class StoreCall {
 public:
  StoreCall(Loop& loop, Start start) : loop_(loop), start_(std::move(start)) {}

  bool await_ready() {
    start_([this](Result<T> answer) { deliver(std::move(answer)); });
    return state_.load(std::memory_order_acquire) == State::answered;
  }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> caller) {
    sleeper_ = &caller.promise();
    State expected = State::running;
    return state_.compare_exchange_strong(expected, State::asleep, std::memory_order_acq_rel);
  }
  Result<T> await_resume() { return *std::move(answer_); }

 private:
  enum class State { running, asleep, answered };

  void deliver(Result<T> answer) {
    answer_.emplace(std::move(answer));
    if (state_.exchange(State::answered, std::memory_order_acq_rel) == State::asleep) loop_.wake(*sleeper_);
  }

  Loop& loop_;
  Start start_;
  std::atomic<State> state_{State::running};
  std::optional<Result<T>> answer_;
  TaskFrame* sleeper_ = nullptr;
};

// co_await await_store<FenceAnswer>(loop, [&](auto done) { store.release(owner, std::move(done)); });
template <class T, class Start>
StoreCall<T, Start> await_store(Loop& loop, Start start) {
  return StoreCall<T, Start>(loop, std::move(start));
}

} // namespace oncekey
