#include "net/watched_descriptor.h"

#include <sys/epoll.h>

#include <cerrno>

namespace oncekey {

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
