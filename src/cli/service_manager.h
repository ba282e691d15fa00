// service_manager: what systemd and its like give a process at its start, and what they hear from it later.
//
// Two small protocols, spoken without a library:
//   sockets  LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES announce sockets that listen already (sd_listen_fds(3)). They
//            outlive the process, so that connections wait in their backlogs while a gateway is restarted.
//   notices  lines such as READY=1 go as datagrams to the unix socket in NOTIFY_SOCKET (sd_notify(3)).
#pragma once

#include "net/loop.h"

#include <oncekey/result.h>

#include <atomic>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace oncekey {

// The names of the listeners, as in FileDescriptorName= of a socket unit.
inline constexpr std::string_view kGatewaySocket = "gateway";
inline constexpr std::string_view kAdminSocket = "admin";
inline constexpr std::string_view kOutboxSocket = "outbox";

// Sockets that listen already, by name.
class InheritedSockets {
 public:
  // Those that the environment announces to this process, from the service manager or from an earlier program of the
  // same process (pass_on_to_exec). The announcement is taken out of the environment.
  static Result<InheritedSockets> from_environment();

  void add(std::string name, Descriptor socket) { sockets_[std::move(name)] = std::move(socket); }
  // A closed one if there is none of that name.
  Descriptor take(std::string_view name);
  bool empty() const { return sockets_.empty(); }
  // What no listener has taken.
  std::vector<std::string> left() const;

  // The program that this process executes next inherits them, and finds them by from_environment().
  void pass_on_to_exec() const;

 private:
  std::map<std::string, Descriptor, std::less<>> sockets_;
};

// Without a service manager every call does nothing. Calls do not block, and a lost notice is of no consequence.
class ServiceManager {
 public:
  ServiceManager();

  void ready(std::string_view status) const;
  void reloading() const;
  void stopping(std::string_view status) const;
  void alive() const { tell("WATCHDOG=1"); }

  // How often alive() is expected at least; nothing if it is not.
  std::optional<std::chrono::milliseconds> watchdog() const { return watchdog_; }

 private:
  void tell(std::string_view lines) const;

  std::string address_; // empty without a service manager
  std::optional<std::chrono::milliseconds> watchdog_;
};

// Tells the service manager, while every event loop turns, that the gateway is alive. Belongs to the loop of `timers`.
class Watchdog {
 public:
  Watchdog(const ServiceManager& manager, Loop& timers, std::vector<Loop*> loops);

 private:
  void look();

  const ServiceManager& manager_;
  const std::vector<Loop*> loops_;
  std::atomic<std::size_t> silent_ = 0; // loops that have not had a turn since the last look
  Timer timer_;
};

} // namespace oncekey
