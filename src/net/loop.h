// Loop: an epoll event loop, run by one thread.
//
// What belongs to a loop (its timers, sockets and waiting tasks) is touched by the thread that runs it, and needs no
// lock. Only post(), wake() and stop() may be called from other threads.
//
// A turn of the loop has two parts. First the loop asks the kernel what has happened and marks it: sockets become
// readable or writable, deadlines pass. Then it runs what was posted and resumes the tasks that waited. No task runs
// during the first part, so that no event can meet an object that an earlier event has destroyed. A task that becomes
// ready while tasks run has its turn in the next one: one busy connection starves no other.
//
// Two kinds of time. Timer: by the thousand, cheap to move, up to kTimerTick late (a deadline on every read and write).
// Notice::wait_until() and sleep_until(): exact to the kernel's timer, for the few that need it.
#pragma once

#include "net/task.h"

#include <oncekey/check.h>

#include <boost/intrusive/list.hpp>
#include <boost/intrusive/set.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace oncekey {

using MonotonicTime = std::chrono::steady_clock::time_point;

inline constexpr std::chrono::milliseconds kTimerTick{50};

class Loop;
class Lookups;
class WatchedDescriptor;

// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { close(); }

  bool open() const { return number_ >= 0; }
  int number() const { return number_; }
  void close() {
    if (open()) ::close(std::exchange(number_, -1));
  }

 private:
  int number_ = -1;
};

// A task that waits for its loop. Lives in the frame of that task; the base of what is awaited.
class Wait : public boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 public:
  Wait() = default;
  Wait& operator=(Wait&&) = delete;

 private:
  friend class Loop;
  TaskFrame* frame_ = nullptr;
};

// A wait that ends at a moment, at the latest.
using DeadlineHook = boost::intrusive::set_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;
class TimedWait : public Wait, public DeadlineHook {
 public:
  friend bool operator<(const TimedWait& a, const TimedWait& b) { return a.due_ < b.due_; }
  void forget_deadline() { DeadlineHook::unlink(); }

 private:
  friend class Loop;
  MonotonicTime due_ = MonotonicTime::max();
};

// Something to do at a moment, unless it is moved or cleared before. Fires up to kTimerTick late.
class Timer : public boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 public:
  Timer(Loop& loop, std::function<void()> fire);
  Timer& operator=(Timer&&) = delete;

  void at(MonotonicTime due) { due_ = due; }
  void after(std::chrono::milliseconds delay) { due_ = std::chrono::steady_clock::now() + delay; }
  void clear() { due_ = MonotonicTime::max(); }

 private:
  friend class Loop;
  MonotonicTime due_ = MonotonicTime::max();
  std::function<void()> fire_;
};

class Loop {
 public:
  // Throws std::system_error when the process is out of descriptors.
  Loop();
  // Destroys the tasks that still wait for this loop. What these tasks use must still be there.
  ~Loop();

  // Runs until stop(). Every run…() is for one thread at a time.
  void run();
  // The thread that runs this loop runs the guest too from now on, in the same turns; null for no guest. Called while
  // neither of them runs. What tasks of one do for the other (post, wake) then costs no system call.
  void host(Loop* guest);
  // Runs on the caller's thread until `over` says so; it is asked after every turn.
  template <class Over>
  void run_until(Over over) {
    while (!over()) turn(Sleep::yes);
  }
  // Runs on the caller's thread until the task is over; its value, or the exception it ended with.
  template <class T>
  T run_to_end(Task<T> task) {
    std::optional<T> value;
    std::exception_ptr thrown;
    spawn(keep(std::move(task), value, thrown));
    run_until([&] { return value || thrown; });
    if (thrown) std::rethrow_exception(thrown);
    return *std::move(value);
  }
  // One turn without sleeping.
  void poll() { turn(Sleep::no); }

  // From any thread. run() returns after the turn under way.
  void stop();
  // From any thread: `work` runs on the loop's thread, in the order of the calls. It must not throw.
  template <class Work>
  void post(Work work) {
    add(std::make_unique<PostedWork<Work>>(std::move(work)));
  }
  // From any thread: the task goes on, on the loop's thread. It has suspended and waits for nothing else.
  void wake(TaskFrame& sleeper);

  // For what can be awaited on this loop: `wait` is suspended, and ready to go on. On the loop's thread.
  void suspend(Wait& wait, TaskFrame& frame) {
    wait.frame_ = &frame;
    waiting_.push_back(wait);
  }
  void suspend_until(TimedWait& wait, TaskFrame& frame, MonotonicTime due);
  void make_ready(Wait& wait) {
    wait.unlink();
    ready_.push_back(wait);
  }

  // co_await loop.next_turn(): lets the others have their turn first.
  class NextTurn;
  NextTurn next_turn();

  // Marks what has happened since the turn began, unless that was asked less than kFresh ago. Resumes no task.
  void catch_up();
  static constexpr std::chrono::microseconds kFresh{100};

  // Names that are being resolved (net/connect.h).
  Lookups& lookups();

 private:
  friend class Timer;
  friend class WatchedDescriptor;

  struct Posted {
    virtual ~Posted() = default;
    virtual void run() = 0;
  };
  template <class Work>
  struct PostedWork final : Posted {
    explicit PostedWork(Work w) : work(std::move(w)) {}
    void run() override { work(); }
    Work work;
  };
  enum class Sleep { no, yes };
  using TimerList = boost::intrusive::list<Timer, boost::intrusive::constant_time_size<false>>;
  using WaitList = boost::intrusive::list<Wait, boost::intrusive::constant_time_size<false>>;
  using Deadlines = boost::intrusive::multiset<TimedWait, boost::intrusive::constant_time_size<false>>;

  template <class T>
  static Task<void> keep(Task<T> task, std::optional<T>& value, std::exception_ptr& thrown) {
    try {
      value.emplace(co_await std::move(task));
    } catch (...) {
      thrown = std::current_exception();
    }
  }
  void add(std::unique_ptr<Posted> work);
  void ring_if_asleep();
  void turn(Sleep sleep);
  // When to wake up at the latest; nothing if there is work. From here on other threads ring the bell.
  std::optional<MonotonicTime> fall_asleep();
  // The second part of a turn.
  void run_tasks(MonotonicTime now);
  // Marks what has happened. Sleeps until something does, or until that moment; without one it does not sleep.
  void take_events(std::optional<MonotonicTime> until);
  void tick(MonotonicTime now);
  void run_posted();

  Descriptor epoll_;
  Descriptor bell_; // an eventfd; rung to end the loop's sleep
  TimerList timers_;
  WaitList waiting_;
  WaitList ready_;
  Deadlines deadlines_;
  MonotonicTime next_tick_;
  MonotonicTime events_taken_; // when the kernel was asked last
  bool has_pwait2_ = true;
  Loop* guest_ = nullptr;
  bool guest_has_events_ = false;

  std::atomic<bool> stopped_{false};
  std::atomic<bool> asleep_{false};  // or about to be
  std::atomic<bool> pending_{false}; // something was posted or woken
  std::mutex mutex_;                 // over the next two
  std::vector<std::unique_ptr<Posted>> posted_;
  std::vector<TaskFrame*> woken_;
  std::vector<std::unique_ptr<Posted>> running_; // of the loop's thread; kept for its memory
  std::vector<TaskFrame*> resuming_;             // the same
  std::shared_ptr<Lookups> lookups_;
};

class Loop::NextTurn : public Wait {
 public:
  explicit NextTurn(Loop& loop) : loop_(loop) {}
  bool await_ready() const noexcept { return false; }
  template <class Promise>
  void await_suspend(std::coroutine_handle<Promise> caller) {
    loop_.suspend(*this, caller.promise());
    loop_.make_ready(*this);
  }
  void await_resume() const noexcept {}

 private:
  Loop& loop_;
};
inline Loop::NextTurn Loop::next_turn() { return NextTurn(*this); }

// Tells one waiting task of the same loop that something has happened. A notice that comes while no task waits is
// kept for the next wait; two of them count as one.
class Notice {
 public:
  explicit Notice(Loop& loop) : loop_(loop) {}
  Notice& operator=(Notice&&) = delete;
  ~Notice() {
    if (waiting_ != nullptr) waiting_->notice_ = nullptr;
  }

  // On the loop's thread. The waiting task goes on with the loop's next turn.
  void give() {
    if (!std::exchange(given_, true) && waiting_ != nullptr) loop_.make_ready(*waiting_);
  }

  class Awaited;
  // co_await: true if the notice came, false if the moment did first.
  Awaited wait_until(MonotonicTime due) { return Awaited(*this, due); }
  Awaited wait() { return Awaited(*this, MonotonicTime::max()); }

  class Awaited : public TimedWait {
   public:
    Awaited(Notice& notice, MonotonicTime due) : notice_(&notice), until_(due) {}
    ~Awaited() {
      if (notice_ != nullptr && notice_->waiting_ == this) notice_->waiting_ = nullptr;
    }
    bool await_ready() const noexcept { return notice_->given_; }
    template <class Promise>
    void await_suspend(std::coroutine_handle<Promise> caller) {
      notice_->waiting_ = this;
      notice_->loop_.suspend_until(*this, caller.promise(), until_);
    }
    bool await_resume() {
      forget_deadline();
      if (notice_ == nullptr) return false;
      notice_->waiting_ = nullptr;
      return std::exchange(notice_->given_, false);
    }

   private:
    friend class Notice;
    Notice* notice_;
    MonotonicTime until_;
  };

 private:
  Loop& loop_;
  Awaited* waiting_ = nullptr;
  bool given_ = false;
};

// A value that arrives once, on the loop's thread, awaited by a task of the same loop.
template <class T>
class Arrival {
 public:
  explicit Arrival(Loop& loop) : notice_(loop) {}
  void set(T value) {
    value_.emplace(std::move(value));
    notice_.give();
  }
  // Nothing if it has not come by then.
  Task<std::optional<T>> wait_until(MonotonicTime due) {
    if (!value_) co_await notice_.wait_until(due);
    co_return std::move(value_);
  }

 private:
  Notice notice_;
  std::optional<T> value_;
};

inline Task<void> sleep_until(Loop& loop, MonotonicTime due) {
  Notice never(loop);
  co_await never.wait_until(due);
}
inline Task<void> sleep_for(Loop& loop, std::chrono::nanoseconds time) {
  return sleep_until(loop, std::chrono::steady_clock::now() + time);
}

// A descriptor that a loop watches, and the tasks that wait for it.
//
// At most one task waits to read and one to write. Registered with the loop at the first wait, edge-triggered, for both
// directions. A read that returns fewer bytes than it had room for has emptied the socket, so the next read waits for
// an event without asking the kernel first.
class WatchedDescriptor {
 public:
  explicit WatchedDescriptor(Loop& loop, Descriptor descriptor = {})
      : loop_(loop), descriptor_(std::move(descriptor)) {}
  ~WatchedDescriptor();

  Loop& loop() const { return loop_; }
  bool open() const { return descriptor_.open(); }
  int number() const { return descriptor_.number(); }
  // A non-blocking descriptor, in place of the one before.
  void assign(Descriptor descriptor);
  // Ends all waits.
  void close();
  // Ends the waits of now, without anything having happened.
  void interrupt();

  // recv() and send() that remember what the kernel said: a call that is known to block fails with EAGAIN without
  // asking it again.
  ssize_t receive(void* into, std::size_t bytes);
  ssize_t send(const msghdr& message);
  // As far as the loop knows there is nothing to read, nor an end. What has happened since it last asked the kernel it
  // does not know yet.
  bool quiet() const { return watched_ && !readable_; }

  class Ready;
  // co_await: true once the descriptor is readable (writable), as the next system call will tell; false if the wait
  // was interrupted or the descriptor closed.
  Ready until_readable();
  Ready until_writable();
  // For the task that reads: a TLS read may have to write first, while another task waits to write.
  Ready until_readable_or_writable();
  // For the task that reads: true with the loop's next turn, whatever has happened by then.
  Ready until_next_turn();

 private:
  friend class Loop;
  enum class Why { ready, interrupted, closed };
  void resume(Ready* waiting, Why why);
  void happened(std::uint32_t events);
  void watch();

  Loop& loop_;
  Descriptor descriptor_;
  Ready* reader_ = nullptr;
  Ready* writer_ = nullptr;
  bool reader_wants_room_ = false; // the reader waits for either
  bool readable_ = true;
  bool writable_ = true;
  bool ended_ = false; // the peer has ended its direction, or the connection failed: a read never blocks again
  bool watched_ = false;
};

class WatchedDescriptor::Ready : public Wait {
 public:
  enum class When { something_happens, next_turn };
  Ready(WatchedDescriptor& watched, Ready*& slot, When when = When::something_happens)
      : watched_(watched), slot_(&slot), when_(when) {}
  ~Ready() { leave(); }
  bool await_ready() const noexcept { return !watched_.open(); }
  template <class Promise>
  void await_suspend(std::coroutine_handle<Promise> caller) {
    ONCEKEY_CHECK(*slot_ == nullptr, "at most one task reads a descriptor, and one writes it");
    *slot_ = this;
    watched_.loop_.suspend(*this, caller.promise());
    if (when_ == When::next_turn) watched_.resume(this, Why::ready);
    watched_.watch();
  }
  bool await_resume() noexcept {
    leave();
    return why_ == Why::ready;
  }

 private:
  friend class WatchedDescriptor;
  void leave() {
    if (slot_ != nullptr && *slot_ == this) *slot_ = nullptr;
    slot_ = nullptr;
  }
  WatchedDescriptor& watched_;
  Ready** slot_; // null once the descriptor is gone
  const When when_;
  Why why_ = Why::closed;
  bool woken_ = false;
};

inline WatchedDescriptor::Ready WatchedDescriptor::until_readable() {
  reader_wants_room_ = false;
  return Ready(*this, reader_);
}
inline WatchedDescriptor::Ready WatchedDescriptor::until_readable_or_writable() {
  reader_wants_room_ = true;
  return Ready(*this, reader_);
}
inline WatchedDescriptor::Ready WatchedDescriptor::until_next_turn() {
  return Ready(*this, reader_, Ready::When::next_turn);
}
inline WatchedDescriptor::Ready WatchedDescriptor::until_writable() { return Ready(*this, writer_); }

} // namespace oncekey
