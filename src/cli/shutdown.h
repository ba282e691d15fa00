// Shutdown: how a gateway stops.
//
// Not ready at once; for timeouts.lame_duck everything is served as before. Then a drain: no new connections, running
// requests end, and when their time is over WebSockets are closed; then the loops stop. Each further signal cuts short
// what is under way, the lame duck or the drain.
#pragma once

#include "cli/service_manager.h"
#include "gateway/shared.h"
#include "http/server.h"
#include "net/loop.h"
#include "net/signals.h"

#include <functional>
#include <vector>

namespace oncekey {

// Belongs to the loop, which hears the signals SIGTERM and SIGINT while it lives.
class Shutdown {
 public:
  Shutdown(Loop& loop, GatewayShared& shared, Server& server, Server& admin, const ServiceManager& manager);

  // Something else that must come to its end: told to begin with it, and asked whether it is over.
  void also(std::function<void()> begin, std::function<bool()> over);
  void on_finished(std::function<void()> then) { then_ = std::move(then); }
  // Called once, when WebSockets are to be closed.
  void on_tunnels_end(std::function<void()> end) { end_tunnels_ = std::move(end); }

  // Another gateway takes the sockets over: as for a signal, but idle connections are kept for it.
  // `clients_wait`: until the store is free, so that WebSockets end at once.
  void hand_over(bool clients_wait);
  // What the drain does with idle connections.
  IdleConnections idle() const { return idle_; }

  // Whether everything has come to its end; else drain_timeout has passed before.
  bool clean() const { return clean_; }

 private:
  struct Other {
    std::function<void()> begin;
    std::function<bool()> over;
  };

  void signalled();
  void leave();
  void drain();
  Task<void> poll();
  // Whether there is nothing left to wait for.
  bool over();

  Loop& loop_;
  GatewayShared& shared_;
  Server& server_;
  Server& admin_;
  const ServiceManager& manager_;
  IdleConnections idle_ = IdleConnections::close;
  bool clients_wait_ = false;
  bool signalled_once_ = false; // while it hands over
  MonotonicTime deadline_;
  std::function<void()> then_;
  std::function<void()> end_tunnels_;
  std::vector<Other> others_;
  bool tunnels_ended_ = false;
  bool admin_draining_ = false;
  bool clean_ = false;
  Timer lame_duck_;
  SignalWatch signals_;
};

} // namespace oncekey
