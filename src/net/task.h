// task: the coroutines that everything on an event loop is written as.
//
// A first execution runs through eight coroutines and really waits in four places. A Task therefore starts at once, and
// awaiting one that has come to its end already costs no more than a look: the caller does not suspend.
//
// A task belongs to the coroutine that awaits it; spawn() lets one run on its own. A task that waits for its Loop
// (net/loop.h) is known to the loop: a loop that is destroyed destroys the tasks that still wait for it, each with all
// that wait for that task in turn, up to the spawn().
//
// gcc 12 copies a task that is awaited by a name inside a condition, as in `if (co_await std::move(task))`: take the
// value first.
#pragma once

#include <coroutine>
#include <exception>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

namespace oncekey {

// What every coroutine knows of itself and of the one that waits for it.
struct TaskFrame {
  std::coroutine_handle<> self;
  TaskFrame* awaited_by = nullptr;

  void resume() { self.resume(); }
  // Ends this coroutine and all that wait for it, without running them any further. Each owns the one it waits for, so
  // that the outermost takes the others along.
  void abandon() {
    TaskFrame* outermost = this;
    while (outermost->awaited_by != nullptr) outermost = outermost->awaited_by;
    outermost->self.destroy();
  }
};

template <class T>
class Task;

template <class T>
struct TaskPromiseBase : TaskFrame {
  std::exception_ptr thrown;
  Task<T> get_return_object();

  struct ToCaller {
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> ended) const noexcept {
      // No caller waits yet when the task has run to its end in one go: the caller goes on by itself.
      TaskFrame* const caller = ended.promise().awaited_by;
      return caller != nullptr ? caller->self : std::noop_coroutine();
    }
    void await_resume() const noexcept {}
  };

  std::suspend_never initial_suspend() const noexcept { return {}; }
  ToCaller final_suspend() const noexcept { return {}; }
  void unhandled_exception() noexcept { thrown = std::current_exception(); }
};

template <class T>
struct TaskPromise : TaskPromiseBase<T> {
  std::optional<T> value;
  template <class From>
  void return_value(From&& from) {
    value.emplace(std::forward<From>(from));
  }
  T result() {
    if (this->thrown) std::rethrow_exception(this->thrown);
    return *std::move(value);
  }
};

template <>
struct TaskPromise<void> : TaskPromiseBase<void> {
  void return_void() const noexcept {}
  void result() const {
    if (thrown) std::rethrow_exception(thrown);
  }
};

template <class T>
class [[nodiscard]] Task {
 public:
  using promise_type = TaskPromise<T>;
  using Value = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  // What is known at once needs no coroutine: a plain function may return it as a Task.
  Task(Value known) : known_(std::move(known)) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)), known_(std::move(other.known_)) {}
  Task& operator=(Task&&) = delete;
  ~Task() {
    if (handle_) handle_.destroy();
  }

  bool await_ready() const noexcept { return !handle_ || handle_.done(); }
  template <class Promise>
  void await_suspend(std::coroutine_handle<Promise> caller) noexcept {
    handle_.promise().awaited_by = &caller.promise();
  }
  T await_resume() {
    if (handle_) return handle_.promise().result();
    if constexpr (!std::is_void_v<T>) return *std::move(known_);
  }

 private:
  std::coroutine_handle<promise_type> handle_;
  std::optional<Value> known_; // if there is no coroutine
};

template <class T>
Task<T> TaskPromiseBase<T>::get_return_object() {
  const auto handle = std::coroutine_handle<TaskPromise<T>>::from_promise(static_cast<TaskPromise<T>&>(*this));
  self = handle;
  return Task<T>(handle);
}

// What is done with an exception that a spawned task ends with.
using TaskFailed = std::function<void(const std::exception&)>;

// The outermost coroutine of a spawned task: no coroutine waits for it, and it frees itself at its end.
struct Spawned {
  struct promise_type : TaskFrame {
    Spawned get_return_object() {
      self = std::coroutine_handle<promise_type>::from_promise(*this);
      return {};
    }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    // The process ends, with the exception's text on standard error.
    void unhandled_exception() const noexcept { std::terminate(); }
  };
};

// Lets a task that has been started go on by itself, on the thread that started it. The task must not throw.
inline Spawned spawn(Task<void> task) { co_await std::move(task); }

// The same for a task that may throw: `failed` is told.
inline Spawned spawn(Task<void> task, TaskFailed failed) {
  try {
    co_await std::move(task);
  } catch (const std::exception& thrown) {
    failed(thrown);
  }
}

} // namespace oncekey
