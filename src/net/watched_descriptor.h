// WatchedDescriptor: a descriptor that a loop watches, and the tasks that wait for it.
//
// At most one task waits to read and one to write. Registered with the loop at the first wait, edge-triggered, for both
// directions. A read that returns fewer bytes than it had room for has emptied the socket, so the next read waits for
// an event without asking the kernel first.
#pragma once

#include "net/descriptor.h"
#include "net/loop.h"

#include <oncekey/check.h>

#include <sys/socket.h>

#include <cstdint>
#include <utility>

namespace oncekey {

class WatchedDescriptor {
 public:
  explicit WatchedDescriptor(Loop& loop, Descriptor descriptor = {})
      : loop_(loop), descriptor_(std::move(descriptor)) {}
  ~WatchedDescriptor();
  WatchedDescriptor(const WatchedDescriptor&) = delete;
  WatchedDescriptor& operator=(const WatchedDescriptor&) = delete;

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
  Ready(WatchedDescriptor& watched, Ready*& slot) : watched_(watched), slot_(&slot) {}
  ~Ready() { leave(); }
  bool await_ready() const noexcept { return !watched_.open(); }
  template <class Promise>
  void await_suspend(std::coroutine_handle<Promise> caller) {
    ONCEKEY_CHECK(*slot_ == nullptr, "at most one task reads a descriptor, and one writes it");
    *slot_ = this;
    watched_.loop_.suspend(*this, caller.promise());
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
inline WatchedDescriptor::Ready WatchedDescriptor::until_writable() { return Ready(*this, writer_); }

} // namespace oncekey
