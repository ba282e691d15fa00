// loop: the event loop a Redis store runs on, and the coroutine types of this room.
//
// One io_context on one thread: whatever belongs to connections is touched by that thread alone and needs no lock.
#pragma once

#include <oncekey/time.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

namespace oncekey::redis {

namespace asio = boost::asio;
using boost::system::error_code;

using Executor = asio::io_context::executor_type;
using Socket = asio::basic_stream_socket<asio::ip::tcp, Executor>;
using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;
using Timer = asio::basic_waitable_timer<Clock, asio::wait_traits<Clock>, Executor>;

template <class T>
using Task = asio::awaitable<T, Executor>;

// Completion token: the operation's error code comes back as a value.
inline constexpr asio::as_tuple_t<asio::use_awaitable_t<Executor>> use_task{};

inline Task<void> sleep_until(asio::io_context& context, Deadline due) {
  Timer timer(context, due);
  co_await timer.async_wait(use_task);
}
inline Task<void> sleep_for(asio::io_context& context, Millis time) {
  return sleep_until(context, Clock::now() + time);
}

// A value that arrives by a callback on the loop's thread, awaited by a coroutine on the same.
template <class T>
class Arrival {
 public:
  explicit Arrival(asio::io_context& context) : timer_(context, Deadline::max()) {}
  void set(T value) {
    value_.emplace(std::move(value));
    timer_.cancel();
  }
  // Nothing if it has not come by then.
  Task<std::optional<T>> wait_until(Deadline due) {
    if (!value_) {
      timer_.expires_at(due);
      co_await timer_.async_wait(use_task);
    }
    co_return std::move(value_);
  }

 private:
  Timer timer_;
  std::optional<T> value_;
};

} // namespace oncekey::redis
