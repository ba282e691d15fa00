#include "net/listener.h"

#include "net/tls.h"

#include <fcntl.h>

#include <cerrno>

namespace oncekey {
namespace {

// Connections taken at once, before the tasks of the loop have their turn.
constexpr unsigned kAcceptsInARowMax = 64;

// The connection was gone before it was accepted (accept(2) says to treat them alike).
bool is_of_the_connection(int error) {
  return error == ECONNABORTED || error == EINTR || error == EPROTO || error == ENETDOWN || error == ENOPROTOOPT ||
         error == EHOSTDOWN || error == ENONET || error == EHOSTUNREACH || error == EOPNOTSUPP || error == ENETUNREACH;
}

} // namespace

Status Listener::listen(const std::string& host, std::uint16_t port) {
  const auto address = parse_ip(host == "localhost" ? "127.0.0.1" : host, port);
  if (!address) return invalid("give an IP address, such as 127.0.0.1 or 0.0.0.0");
  Descriptor made(::socket(address->family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  // A port that a process has just given up can be had.
  const int yes = 1;
  const bool listens = made.open() && ::setsockopt(made.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
                       ::bind(made.number(), address->get(), address->length) == 0 &&
                       ::listen(made.number(), kBacklog) == 0;
  if (!listens && errno == EADDRINUSE) return Fault{FaultKind::conflict, "another process has this port"};
  if (!listens) return invalid(last_system_error().message());
  socket_.assign(std::move(made));
  return ok_status();
}

Status Listener::adopt(Descriptor listening) {
  int listens = 0;
  socklen_t length = sizeof listens;
  if (::getsockopt(listening.number(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0)
    return invalid("it is not a socket that listens");
  SocketAddress bound;
  if (::getsockname(listening.number(), bound.get(), &bound.length) != 0 ||
      (bound.family() != AF_INET && bound.family() != AF_INET6))
    return invalid("it does not listen on TCP");
  const int flags = ::fcntl(listening.number(), F_GETFL);
  if (flags < 0 || ::fcntl(listening.number(), F_SETFL, flags | O_NONBLOCK) != 0 ||
      ::fcntl(listening.number(), F_SETFD, FD_CLOEXEC) != 0)
    return invalid(last_system_error().message());
  socket_.assign(std::move(listening));
  return ok_status();
}

Descriptor Listener::duplicate() const { return Descriptor(::fcntl(socket_.number(), F_DUPFD_CLOEXEC, 0)); }

std::string Listener::address() const {
  SocketAddress bound;
  if (::getsockname(socket_.number(), bound.get(), &bound.length) != 0) return {};
  return bound.text();
}

Listener::Accepted Listener::accept_waiting() {
  Accepted accepted;
  accepted.socket =
      Descriptor(::accept4(socket_.number(), accepted.peer.get(), &accepted.peer.length, SOCK_NONBLOCK | SOCK_CLOEXEC));
  return accepted;
}

Task<Listener::Accepted> Listener::accept() {
  Accepted accepted;
  if (++in_a_row_ > kAcceptsInARowMax) {
    in_a_row_ = 0;
    co_await socket_.loop().next_turn();
  }
  while (socket_.open()) {
    accepted.peer = {};
    const int number =
        ::accept4(socket_.number(), accepted.peer.get(), &accepted.peer.length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (number >= 0) {
      accepted.socket = Descriptor(number);
      co_return accepted;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      in_a_row_ = 0;
      if (!co_await socket_.until_readable()) break;
    } else if (!is_of_the_connection(errno)) {
      accepted.error = last_system_error();
      co_return accepted;
    }
  }
  accepted.error = closed_error();
  co_return accepted;
}

} // namespace oncekey
