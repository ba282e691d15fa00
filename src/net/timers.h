// timers: deadlines by the thousand, cheaply.
//
// Every connection has a deadline that moves with each read and write, and nearly none of them ever passes. Setting one
// is a store of a number; a single tick per thread walks over all of them. The price is precision: a deadline fires up
// to one tick late, which no time-out here minds.
#pragma once

#include "net/task.h"

#include <boost/asio/steady_timer.hpp>
#include <boost/intrusive/list.hpp>

#include <chrono>
#include <functional>

namespace oncekey {

using MonotonicTime = std::chrono::steady_clock::time_point;

inline constexpr std::chrono::milliseconds kTimerTick{50};

class Timers;

// Something to do at a moment, unless it is moved or cleared before. Belongs to the thread of its Timers.
class Timer : public boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 public:
  Timer(Timers& timers, std::function<void()> fire);
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void at(MonotonicTime due) { due_ = due; }
  void after(std::chrono::milliseconds delay) { due_ = std::chrono::steady_clock::now() + delay; }
  void clear() { due_ = MonotonicTime::max(); }

 private:
  friend class Timers;
  MonotonicTime due_ = MonotonicTime::max();
  std::function<void()> fire_;
};

class Timers {
 public:
  explicit Timers(asio::io_context& context);
  // Stops ticking, so that the io_context can run out of work.
  void stop();
  asio::io_context& context() { return context_; }

 private:
  friend class Timer;
  using List = boost::intrusive::list<Timer, boost::intrusive::constant_time_size<false>>;

  void tick();
  void walk(MonotonicTime now);

  asio::io_context& context_;
  asio::basic_waitable_timer<std::chrono::steady_clock, asio::wait_traits<std::chrono::steady_clock>, Executor> ticker_;
  List timers_;
  bool stopped_ = false;
};

} // namespace oncekey
