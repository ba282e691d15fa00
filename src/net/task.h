// task: the coroutines of the HTTP side and the sockets they wait for.
//
// One io_context runs on one thread, so everything that belongs to a connection is touched by that thread alone and
// needs no lock. Naming the executor type (instead of any_io_executor) keeps type erasure off the hot path.
//
// A request runs through some thirty coroutines and really waits in four places. A Task therefore starts at once, and
// awaiting one that has come to its end already costs no more than a look: the caller does not suspend. Asio's own
// awaitable starts later, from a loop that keeps track of every frame; that was a fifth of the gateway's instructions.
//
// A task belongs to whoever awaits it; spawn() lets one run on its own. One that waits for an operation is owned by
// that operation's handler: an event loop that ends with work left over destroys the handler, and with it the task and
// everybody up to the spawn() that waits for it.
#pragma once

#include <boost/asio/async_result.hpp>
#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <coroutine>
#include <exception>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

namespace oncekey {

namespace asio = boost::asio;
using boost::system::error_code;

using Executor = asio::io_context::executor_type;
using Socket = asio::basic_stream_socket<asio::ip::tcp, Executor>;

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

// The right to resume a waiting coroutine, once. Dropped unused, it ends the coroutine.
class Resumption {
 public:
  explicit Resumption(TaskFrame& frame) : frame_(&frame) {}
  Resumption(Resumption&& other) noexcept : frame_(std::exchange(other.frame_, nullptr)) {}
  Resumption& operator=(Resumption&&) = delete;
  ~Resumption() {
    if (frame_ != nullptr) frame_->abandon();
  }
  void resume() { std::exchange(frame_, nullptr)->resume(); }

 private:
  TaskFrame* frame_;
};

template <class T>
class Task;

template <class T>
struct TaskPromiseBase : TaskFrame {
  std::exception_ptr thrown;

  struct ToCaller {
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> ended) const noexcept {
      // Nobody waits yet when the task has run to its end in one go: its caller goes on by itself.
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
  Task<T> get_return_object();
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
  Task<void> get_return_object();
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
Task<T> TaskPromise<T>::get_return_object() {
  const auto handle = std::coroutine_handle<TaskPromise>::from_promise(*this);
  this->self = handle;
  return Task<T>(handle);
}
inline Task<void> TaskPromise<void>::get_return_object() {
  const auto handle = std::coroutine_handle<TaskPromise>::from_promise(*this);
  self = handle;
  return Task<void>(handle);
}

// The outermost coroutine of a spawned task: nobody waits for it, and it frees itself at its end.
struct Spawned {
  struct promise_type : TaskFrame {
    Spawned get_return_object() {
      self = std::coroutine_handle<promise_type>::from_promise(*this);
      return {};
    }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    // A task that has something to say about its end says so itself.
    void unhandled_exception() const noexcept {}
  };
};

// Lets a task that has been started go on by itself, on the thread that started it.
inline Spawned spawn(Task<void> task) { co_await std::move(task); }

// Completion token: `co_await socket.async_read_some(buffer, use_task)` gives the operation's results as a tuple.
struct UseTask {};
inline constexpr UseTask use_task{};

// An asynchronous operation, started when the coroutine that awaits it has suspended.
template <class Initiation, class Signature, class... Arguments>
class AwaitedOperation;

template <class Initiation, class... Results, class... Arguments>
class AwaitedOperation<Initiation, void(Results...), Arguments...> {
 public:
  AwaitedOperation(Initiation initiation, Arguments... arguments)
      : initiation_(std::move(initiation)), arguments_(std::move(arguments)...) {}

  bool await_ready() const noexcept { return false; }
  template <class Promise>
  void await_suspend(std::coroutine_handle<Promise> waiting) {
    std::apply(
        [&](Arguments&... arguments) {
          std::move(initiation_)(Handler(*this, waiting.promise()), std::move(arguments)...);
        },
        arguments_);
  }
  std::tuple<Results...> await_resume() { return *std::move(results_); }

 private:
  class Handler {
   public:
    Handler(AwaitedOperation& operation, TaskFrame& waiting) : operation_(&operation), resumption_(waiting) {}
    void operator()(Results... results) {
      operation_->results_.emplace(std::move(results)...);
      resumption_.resume();
    }

   private:
    AwaitedOperation* operation_;
    Resumption resumption_;
  };

  Initiation initiation_;
  std::tuple<Arguments...> arguments_;
  std::optional<std::tuple<Results...>> results_;
};

} // namespace oncekey

template <class... Results>
struct boost::asio::async_result<oncekey::UseTask, void(Results...)> {
  template <class Initiation, class... Arguments>
  static auto initiate(Initiation&& initiation, oncekey::UseTask, Arguments&&... arguments) {
    return oncekey::AwaitedOperation<std::decay_t<Initiation>, void(Results...), std::decay_t<Arguments>...>(
        std::forward<Initiation>(initiation), std::forward<Arguments>(arguments)...);
  }
};
