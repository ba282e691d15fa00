// WithoutSigpipe: while it lives, writing to a connection that the other side has closed is an error and not a signal
// to this thread.
//
// SIGPIPE ends a process that does not expect it, and whether it is ignored is the application's to say and not a
// library's. hiredis and OpenSSL write without MSG_NOSIGNAL. So it is blocked around their calls, and one that has come
// meanwhile is taken back; one that was waiting before is not ours and stays.
#pragma once

#include <csignal>

namespace oncekey {

class WithoutSigpipe {
 public:
  WithoutSigpipe();
  ~WithoutSigpipe();
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

 private:
  bool was_pending_ = false;
  sigset_t before_{};
};

} // namespace oncekey
