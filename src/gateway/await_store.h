// await_store: from a store's callback to a coroutine.
//
// A store answers on any thread, sometimes before the call returns. The coroutine goes on on its own thread; when the
// answer was there at once (a replay, usually) it does not even suspend.
#pragma once

#include "http/task.h"

#include <oncekey/result.h>

#include <boost/asio/async_result.hpp>
#include <boost/asio/post.hpp>

#include <atomic>
#include <memory>
#include <optional>
#include <utility>

namespace oncekey {

// Holds one answer between the thread that gives it and the coroutine that wants it. Lives in the coroutine's frame:
// whoever comes second (the answer or the wish to sleep) hands the coroutine back to its thread, and nobody touches
// the mailbox after that.
template <class T>
class Mailbox {
 public:
  void deliver(Result<T> answer) {
    answer_.emplace(std::move(answer));
    if (state_.exchange(State::delivered, std::memory_order_acq_rel) == State::asleep) {
      const std::unique_ptr<Sleeper> sleeper = std::move(sleeper_);
      sleeper->wake();
    }
  }

  bool delivered() const { return state_.load(std::memory_order_acquire) == State::delivered; }
  Result<T> take() { return std::move(*answer_); }

  // Returns when the answer has been delivered.
  Task<void> sleep() {
    co_await asio::async_initiate<const asio::use_awaitable_t<Executor>, void()>(
        [this](auto handler) {
          sleeper_ = std::make_unique<SleeperOf<decltype(handler)>>(std::move(handler));
          State expected = State::empty;
          if (!state_.compare_exchange_strong(expected, State::asleep, std::memory_order_acq_rel)) {
            const std::unique_ptr<Sleeper> sleeper = std::move(sleeper_);
            sleeper->wake();
          }
        },
        asio::use_awaitable_t<Executor>{});
  }

 private:
  enum class State { empty, asleep, delivered };

  struct Sleeper {
    virtual ~Sleeper() = default;
    virtual void wake() = 0;
  };
  template <class Handler>
  struct SleeperOf final : Sleeper {
    explicit SleeperOf(Handler h) : handler(std::move(h)) {}
    void wake() override {
      const auto executor = asio::get_associated_executor(handler);
      asio::post(executor, std::move(handler));
    }
    Handler handler;
  };

  std::atomic<State> state_{State::empty};
  std::optional<Result<T>> answer_;
  std::unique_ptr<Sleeper> sleeper_;
};

// co_await await_store<FenceAnswer>([&](auto done) { store.release(owner, std::move(done)); });
template <class T, class Start>
Task<Result<T>> await_store(Start start) {
  Mailbox<T> mailbox;
  start([box = &mailbox](Result<T> answer) { box->deliver(std::move(answer)); });
  if (!mailbox.delivered()) co_await mailbox.sleep();
  co_return mailbox.take();
}

} // namespace oncekey
