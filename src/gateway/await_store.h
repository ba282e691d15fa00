// await_store: from a store's callback to a coroutine.
//
// A store answers on any thread, sometimes before the call returns. The coroutine goes on on its own thread; when the
// answer was there at once (a replay, usually) it does not even suspend.
#pragma once

#include "net/task.h"

#include <oncekey/result.h>

#include <boost/asio/post.hpp>

#include <atomic>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace oncekey {

// Brings coroutines back to the event loop they belong to. A store answers a whole batch of calls at once: all of them
// go to the loop as one piece of work, and it is woken once.
class Wakeups {
 public:
  explicit Wakeups(asio::io_context& context) : context_(context) {}
  Wakeups(const Wakeups&) = delete;
  Wakeups& operator=(const Wakeups&) = delete;

  // From any thread.
  void wake(TaskFrame& sleeper) {
    bool first = false;
    {
      const std::lock_guard lock(mutex_);
      first = woken_.empty();
      woken_.push_back(&sleeper);
    }
    if (first) asio::post(context_, [this] { resume_all(); });
  }

 private:
  void resume_all() {
    {
      const std::lock_guard lock(mutex_);
      resuming_.swap(woken_);
    }
    for (TaskFrame* const sleeper : resuming_) sleeper->resume();
    resuming_.clear();
  }

  asio::io_context& context_;
  std::mutex mutex_;
  std::vector<TaskFrame*> woken_;
  std::vector<TaskFrame*> resuming_; // of the loop's thread alone; kept for its memory
};

// One call to a store, awaited. Lives in the coroutine's frame: whoever comes second (the answer or the wish to sleep)
// lets the coroutine go on, and nobody touches this after that.
template <class T, class Start>
class StoreCall {
 public:
  StoreCall(Wakeups& wakeups, Start start) : wakeups_(wakeups), start_(std::move(start)) {}
  StoreCall(const StoreCall&) = delete;
  StoreCall& operator=(const StoreCall&) = delete;

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
    if (state_.exchange(State::answered, std::memory_order_acq_rel) == State::asleep) wakeups_.wake(*sleeper_);
  }

  Wakeups& wakeups_;
  Start start_;
  std::atomic<State> state_{State::running};
  std::optional<Result<T>> answer_;
  TaskFrame* sleeper_ = nullptr;
};

// co_await await_store<FenceAnswer>(wakeups, [&](auto done) { store.release(owner, std::move(done)); });
template <class T, class Start>
StoreCall<T, Start> await_store(Wakeups& wakeups, Start start) {
  return StoreCall<T, Start>(wakeups, std::move(start));
}

} // namespace oncekey
