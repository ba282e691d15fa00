// pass_through: requests the gateway has no say in, streamed both ways at the same time, without being held in memory.
#pragma once

#include "gateway/thread.h"
#include "http/tunnel.h"

#include <boost/intrusive/list.hpp>

#include <string>

namespace oncekey {

// What the upstream answered, or why nothing whole came.
struct Passed {
  CallError error = CallError::none;
  int status = 0;
  Headers headers;
};

// The tunnels of one thread.
struct TunnelList {
  boost::intrusive::list<Tunnel, boost::intrusive::constant_time_size<false>> open;
  bool end = false; // no new one may begin
};

class PassThrough {
 public:
  explicit PassThrough(GatewayThread& thread) : thread_(thread) {}

  // `body` is what was read of the request already; null if nothing was. `marks` are added to the answer.
  Task<Passed> run(Exchange& exchange, const Route& route, const Sharer& sharer, const Headers& marks,
                   const std::string* body);
  // To an upstream, where there is no route. `patience` is how long either side may stay silent.
  Task<Passed> run(Exchange& exchange, Upstream& upstream, Millis patience, const Sharer& sharer, const Headers& marks,
                   const std::string* body);
  // Closes the tunnels of this thread, on this thread, and lets no new one begin.
  void end_tunnels();

  // For run() where there is nothing to mark.
  static inline const Headers kNoMarks;

 private:
  GatewayThread& thread_;
  TunnelList tunnels_;
};

} // namespace oncekey
