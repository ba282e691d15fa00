#include "net/loop.h"

#include "net/connect.h"
#include "net/tls.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

#include <cerrno>
#include <system_error>

namespace oncekey {

// Events taken from the kernel with one system call.
constexpr int kEventsMax = 256;

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
  stopped_.store(false);
}

void Loop::host(Loop* guest) {
  epoll_event event{};
  event.events = EPOLLIN; // an epoll descriptor is readable while it has events
  event.data.ptr = guest;
  if (guest_ != nullptr) ::epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, guest_->epoll_.number(), nullptr);
  guest_ = guest;
  guest_has_events_ = guest != nullptr; // those from before
  if (guest != nullptr && ::epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, guest->epoll_.number(), &event) != 0)
    throw std::system_error(last_system_error(), "an event loop cannot watch another one");
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

std::optional<MonotonicTime> Loop::fall_asleep() {
  if (!ready_.empty()) return std::nullopt;
  asleep_.store(true);
  if (pending_.load() || stopped_.load()) return std::nullopt;
  const MonotonicTime until = deadlines_.empty() ? next_tick_ : std::min(next_tick_, deadlines_.begin()->due_);
  if (guest_ == nullptr) return until;
  const std::optional<MonotonicTime> until_of_guest = guest_->fall_asleep();
  return until_of_guest ? std::optional(std::min(until, *until_of_guest)) : std::nullopt;
}

void Loop::turn(Sleep sleep) {
  take_events(sleep == Sleep::yes ? fall_asleep() : std::nullopt);
  asleep_.store(false, std::memory_order_relaxed);
  const MonotonicTime now = std::chrono::steady_clock::now();
  if (guest_ != nullptr) {
    guest_->asleep_.store(false, std::memory_order_relaxed);
    if (std::exchange(guest_has_events_, false)) guest_->take_events(std::nullopt);
    guest_->run_tasks(now);
  }
  run_tasks(now);
  // What this loop's tasks have just asked of the guest.
  if (guest_ != nullptr && guest_->pending_.load()) guest_->run_tasks(now);
}

void Loop::run_tasks(MonotonicTime now) {
  events_taken_ = now;
  while (!deadlines_.empty() && deadlines_.begin()->due_ <= now) {
    TimedWait& due = *deadlines_.begin();
    due.forget_deadline();
    make_ready(due);
  }
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
    if (event.data.ptr == nullptr) continue;
    if (event.data.ptr == guest_) {
      guest_has_events_ = true;
    } else {
      static_cast<WatchedDescriptor*>(event.data.ptr)->happened(event.events);
    }
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

void WatchedDescriptor::assign(Descriptor descriptor) {
  close();
  descriptor_ = std::move(descriptor);
  readable_ = writable_ = true;
  ended_ = watched_ = false;
}

void WatchedDescriptor::close() {
  // Closing alone does not take it out of epoll while a forked process holds it too.
  if (std::exchange(watched_, false)) ::epoll_ctl(loop_.epoll_.number(), EPOLL_CTL_DEL, descriptor_.number(), nullptr);
  descriptor_.close();
  resume(reader_, Why::closed);
  resume(writer_, Why::closed);
}

WatchedDescriptor::~WatchedDescriptor() {
  close();
  for (Ready* const waiting : {reader_, writer_}) {
    if (waiting != nullptr) waiting->slot_ = nullptr;
  }
}

void WatchedDescriptor::interrupt() {
  resume(reader_, Why::interrupted);
  resume(writer_, Why::interrupted);
}

void WatchedDescriptor::resume(Ready* waiting, Why why) {
  if (waiting == nullptr) return;
  // A task that is about to go on anyway is told only that the descriptor is gone.
  if (!waiting->woken_ || why == Why::closed) waiting->why_ = why;
  if (!std::exchange(waiting->woken_, true)) loop_.make_ready(*waiting);
}

ssize_t WatchedDescriptor::receive(void* into, std::size_t bytes) {
  if (!readable_) {
    errno = EAGAIN;
    return -1;
  }
  ssize_t got = 0;
  do {
    got = ::recv(descriptor_.number(), into, bytes, 0);
  } while (got < 0 && errno == EINTR);
  if (got == 0) ended_ = true;
  // What comes after a short read is a new edge. An end that has been seen makes no further one.
  if (got < 0 ? errno == EAGAIN || errno == EWOULDBLOCK : static_cast<std::size_t>(got) < bytes && !ended_)
    readable_ = false;
  return got;
}

ssize_t WatchedDescriptor::send(const msghdr& message) {
  if (!writable_) {
    errno = EAGAIN;
    return -1;
  }
  ssize_t went = 0;
  do {
    went = ::sendmsg(descriptor_.number(), &message, MSG_NOSIGNAL);
  } while (went < 0 && errno == EINTR);
  if (went < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) writable_ = false;
  return went;
}

void WatchedDescriptor::watch() {
  if (watched_) return;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.ptr = this;
  if (::epoll_ctl(loop_.epoll_.number(), EPOLL_CTL_ADD, descriptor_.number(), &event) == 0) {
    watched_ = true;
    return;
  }
  // Out of memory or of watches (fs.epoll.max_user_watches): the waits end, and the next system calls fail or not.
  close();
}

void WatchedDescriptor::happened(std::uint32_t events) {
  if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
    readable_ = true;
    ended_ = ended_ || (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    resume(reader_, Why::ready);
  }
  if ((events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) {
    writable_ = true;
    resume(writer_, Why::ready);
    if (reader_wants_room_) resume(reader_, Why::ready);
  }
}

} // namespace oncekey
