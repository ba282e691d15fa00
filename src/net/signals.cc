#include "net/signals.h"

#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <csignal>

namespace oncekey {
namespace {

// A signal handler gets nothing but the signal's number: the eventfd to ring has to be found by it. 0 is none.
std::array<std::atomic<int>, NSIG>& bells() {
  static std::array<std::atomic<int>, NSIG> of_signals;
  return of_signals;
}
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler reads it");

void ring(int signal) {
  const int before = errno;
  const int bell = bells()[static_cast<std::size_t>(signal)].load();
  const std::uint64_t one = 1;
  if (bell > 0) (void)!::write(bell, &one, sizeof one);
  errno = before;
}

} // namespace

SignalWatch::SignalWatch(Loop& loop, std::vector<int> signals, std::function<void()> caught)
    : signals_(std::move(signals)),
      caught_(std::move(caught)),
      bell_(loop, Descriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC))) {
  ONCEKEY_CHECK(bell_.open(), "no descriptor is left for signals");
  for (const int signal : signals_) {
    bells()[static_cast<std::size_t>(signal)].store(bell_.number());
    struct sigaction action {};
    action.sa_handler = ring;
    action.sa_flags = SA_RESTART;
    ::sigaction(signal, &action, nullptr);
  }
  spawn(watch());
}

SignalWatch::~SignalWatch() {
  for (const int signal : signals_) {
    std::signal(signal, SIG_DFL);
    bells()[static_cast<std::size_t>(signal)].store(0);
  }
}

Task<void> SignalWatch::watch() {
  while (co_await bell_.until_readable()) {
    std::uint64_t rung = 0;
    if (::read(bell_.number(), &rung, sizeof rung) < 0) continue;
    for (; rung > 0; --rung) caught_();
  }
}

} // namespace oncekey
