// connect: from a name to a connection that can be used, within one deadline.
//
// getaddrinfo() can be neither awaited nor interrupted. It runs on threads beside the loop, few of them; a task that
// asks stops waiting when it is due, and the answer is dropped. An IP address needs no thread.
#pragma once

#include "net/socket_address.h"
#include "net/transport.h"

#include <deque>

namespace oncekey {

enum class ConnectFailure {
  none,
  no_such_name, // the name servers say so; another try is in vain
  unreachable,  // refused, no route, a name that cannot be resolved now, a handshake that failed
  timed_out,
  own_shortage, // of descriptors or memory; says nothing of the server
  distrusted,   // the certificate is not trusted or for another name; another try is in vain
  no_tls,       // the peer does not speak TLS; another try is in vain
};

struct Connected {
  std::unique_ptr<Transport> transport; // null if there is a failure; its deadline is the one given
  ConnectFailure failure = ConnectFailure::none;
  std::string reason;  // for people: what failed, with the name or address
  std::string address; // the one that was connected to
};

// Resolves `host` and tries its addresses in turn, each with a fair share of the time that is left; then TLS, unless
// `tls` is null. `host` is what the certificate must be for.
Task<Connected> connect(Loop& loop, std::string host, std::uint16_t port, TlsContext tls, MonotonicTime due);

struct Resolved {
  std::vector<SocketAddress> addresses; // at least one, unless there is a reason
  std::string reason;                   // why there is none
  bool no_such_name = false;            // the name servers say that the name does not exist: asking again is in vain
};

Task<Resolved> resolve(Loop& loop, const std::string& host, std::uint16_t port, MonotonicTime due);

// The names that a loop's tasks have asked for. Its threads may outlive the loop.
class Lookups : public std::enable_shared_from_this<Lookups> {
 public:
  // Threads at one time, and names that wait for one: a name server that does not answer holds a thread for many
  // seconds.
  static constexpr std::size_t kThreadsMax = 4;
  static constexpr std::size_t kWaitingMax = 256;

  struct Lookup {
    Lookup(Loop& loop, std::string host_asked, std::uint16_t port_asked)
        : host(std::move(host_asked)), port(port_asked), answer(loop) {}
    const std::string host;
    const std::uint16_t port;
    Arrival<Resolved> answer;
  };

  explicit Lookups(Loop& loop) : loop_(&loop) {}
  // False if too many wait already, or no thread can be started.
  bool ask(std::shared_ptr<Lookup> lookup);
  // The loop ends: what is not answered will not be.
  void leave();

 private:
  void work();

  std::mutex mutex_; // over all below
  Loop* loop_;       // null after leave()
  std::deque<std::shared_ptr<Lookup>> waiting_;
  std::size_t threads_ = 0;
};

} // namespace oncekey
