#include "workers/without_sigpipe.h"

#include <cerrno>
#include <ctime>

namespace oncekey {
namespace {

sigset_t only_sigpipe() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  return set;
}

bool sigpipe_pending() {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGPIPE) == 1;
}

} // namespace

WithoutSigpipe::WithoutSigpipe() : was_pending_(sigpipe_pending()) {
  const sigset_t set = only_sigpipe();
  pthread_sigmask(SIG_BLOCK, &set, &before_);
}

// The signal goes to the thread that wrote: no other can take it in between.
WithoutSigpipe::~WithoutSigpipe() {
  const int error = errno;
  if (!was_pending_ && sigpipe_pending()) {
    const sigset_t set = only_sigpipe();
    const timespec at_once{};
    while (sigtimedwait(&set, nullptr, &at_once) == -1 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  errno = error;
}

} // namespace oncekey
