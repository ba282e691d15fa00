// Listener: accepts connections on one loop; the sockets it returns may be used on any.
#pragma once

#include "net/loop.h"
#include "net/socket_address.h"

#include <oncekey/result.h>

#include <system_error>

namespace oncekey {

class Listener {
 public:
  explicit Listener(Loop& loop) : socket_(loop) {}

  // `host` is an IP address or "localhost". A fault says why not; `conflict`: another process has the port.
  Status listen(const std::string& host, std::uint16_t port);
  // Goes on with a socket that listens already: of the service manager, or of a process that hands it over.
  Status adopt(Descriptor listening);
  // The same socket once more, for another process. Connections that wait in its backlog wait for whichever accepts.
  Descriptor duplicate() const;
  // With the port that was given.
  std::string address() const;

  struct Accepted {
    std::error_code error; // operation_canceled once the listener is closed
    Descriptor socket;     // non-blocking
    SocketAddress peer;
  };
  Task<Accepted> accept();
  // A connection that waits in the backlog; a closed socket if there is none. On the loop's thread.
  Accepted accept_waiting();
  // As many may wait there, for bursts of reconnecting clients; the kernel caps it at its own limit.
  static constexpr int kBacklog = 1024;
  bool open() const { return socket_.open(); }
  // On the loop's thread.
  void close() { socket_.close(); }

 private:
  WatchedDescriptor socket_;
  unsigned in_a_row_ = 0; // accepted without a wait
};

} // namespace oncekey
