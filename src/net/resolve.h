// resolve: from a name to addresses, within a deadline.
//
// getaddrinfo() can be neither awaited nor interrupted. It runs on threads beside the loop, few of them; a task that
// asks stops waiting when it is due, and the answer is dropped. An IP address needs no thread.
#pragma once

#include "net/loop.h"
#include "net/socket_address.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace oncekey {

struct Resolved {
  std::vector<SocketAddress> addresses; // at least one, unless there is a reason
  std::string reason;                   // why there is none
  bool no_such_name = false;            // the name servers say that the name does not exist: asking again is in vain
};

Task<Resolved> resolve(Loop& loop, const std::string& host, std::uint16_t port, MonotonicTime due);

// The same on the caller's thread, for as long as it takes.
Resolved resolve_now(const std::string& host, std::uint16_t port);

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
