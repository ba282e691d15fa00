#include "net/loop.h"

#include "net/errors.h"
#include "net/resolve.h"
#include "net/watched_descriptor.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

namespace oncekey {
namespace {

// Events taken from the kernel with one system call.
constexpr int kEventsMax = 256;

} // namespace

Timer::Timer(Loop& loop, std::function<void()> fire) : fire_(std::move(fire)) { loop.timers_.push_back(*this); }

Loop::Loop()
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      bell_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      next_tick_(std::chrono::steady_clock::now() + kTimerTick) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET; // each ring is an edge: the bell need not be read
  event.data.ptr = nullptr;
  if (!epoll_.open() || !bell_.open() || ::epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, bell_.number(), &event) != 0)
    throw std::system_error(last_system_error(), "an event loop needs two descriptors");
}

Loop::~Loop() {
  if (lookups_) lookups_->leave();
  for (TaskFrame* const frame : woken_) frame->abandon();
  for (WaitList* const list : {&waiting_, &ready_}) {
    while (!list->empty()) list->front().frame_->abandon();
  }
}

void Loop::run() {
  while (!stopped_.load()) turn(Sleep::yes);
}

void Loop::stop() {
  stopped_.store(true);
  ring_if_asleep();
}

void Loop::add(std::unique_ptr<Posted> work) {
  const std::lock_guard lock(mutex_);
  posted_.push_back(std::move(work));
  pending_.store(true);
  ring_if_asleep(); // under the lock: the loop may be destroyed once it has run the work
}

void Loop::wake(TaskFrame& sleeper) {
  const std::lock_guard lock(mutex_);
  woken_.push_back(&sleeper);
  pending_.store(true);
  ring_if_asleep(); // under the lock, as above
}

// Either this sees that the loop goes to sleep, or the loop sees, before it does, what has been stored before this.
void Loop::ring_if_asleep() {
  if (!asleep_.exchange(false)) return;
  const std::uint64_t one = 1;
  // Fails only when the count is full, and then the bell has been rung.
  (void)!::write(bell_.number(), &one, sizeof one);
}

void Loop::suspend_until(TimedWait& wait, TaskFrame& frame, MonotonicTime due) {
  suspend(wait, frame);
  if (due == MonotonicTime::max()) return;
  wait.due_ = due;
  deadlines_.insert(wait);
}

void Loop::turn(Sleep sleep) {
  std::optional<MonotonicTime> until;
  if (sleep == Sleep::yes && ready_.empty()) {
    asleep_.store(true);
    if (!pending_.load() && !stopped_.load()) {
      until = deadlines_.empty() ? next_tick_ : std::min(next_tick_, deadlines_.begin()->due_);
    }
  }
  take_events(until);
  asleep_.store(false, std::memory_order_relaxed);
  const MonotonicTime now = events_taken_ = std::chrono::steady_clock::now();
  while (!deadlines_.empty() && deadlines_.begin()->due_ <= now) {
    TimedWait& due = *deadlines_.begin();
    due.forget_deadline();
    make_ready(due);
  }
  // From here on tasks run.
  if (pending_.load()) run_posted();
  WaitList ready;
  ready.swap(ready_);
  while (!ready.empty()) {
    Wait& wait = ready.front();
    wait.unlink();
    wait.frame_->resume();
  }
  if (now >= next_tick_) tick(now);
}

void Loop::catch_up() {
  const MonotonicTime now = std::chrono::steady_clock::now();
  if (now - events_taken_ < kFresh) return;
  take_events(std::nullopt);
  events_taken_ = now;
}

void Loop::take_events(std::optional<MonotonicTime> until) {
  std::array<epoll_event, kEventsMax> events;
  std::chrono::nanoseconds left{0};
  if (until) left = std::max(left, std::chrono::nanoseconds(*until - std::chrono::steady_clock::now()));
  int count = -1;
#ifdef SYS_epoll_pwait2
  if (has_pwait2_) {
    const timespec timeout{static_cast<time_t>(left.count() / 1'000'000'000), left.count() % 1'000'000'000};
    count = static_cast<int>(
        ::syscall(SYS_epoll_pwait2, epoll_.number(), events.data(), kEventsMax, &timeout, nullptr, std::size_t{0}));
    // Kernels before 5.11 do not have it, and some containers forbid it.
    if (count < 0 && errno != EINTR) has_pwait2_ = false;
  }
#else
  has_pwait2_ = false;
#endif
  if (!has_pwait2_) {
    const auto rounded_up = std::chrono::ceil<std::chrono::milliseconds>(left);
    count = ::epoll_wait(epoll_.number(), events.data(), kEventsMax, static_cast<int>(rounded_up.count()));
  }
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.ptr != nullptr) static_cast<WatchedDescriptor*>(event.data.ptr)->happened(event.events);
  }
  if (count == kEventsMax) take_events(std::nullopt); // there may be more
}

void Loop::run_posted() {
  pending_.store(false);
  {
    const std::lock_guard lock(mutex_);
    running_.swap(posted_);
    resuming_.swap(woken_);
  }
  for (TaskFrame* const sleeper : resuming_) sleeper->resume();
  resuming_.clear();
  for (const auto& work : running_) work->run();
  running_.clear();
}

void Loop::tick(MonotonicTime now) {
  next_tick_ = now + kTimerTick;
  // What fires may destroy any other timer or make new ones: the due ones are set aside first, and each unlinks itself
  // from the list it is in when it goes.
  TimerList due;
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

Lookups& Loop::lookups() {
  if (!lookups_) lookups_ = std::make_shared<Lookups>(*this);
  return *lookups_;
}

} // namespace oncekey
