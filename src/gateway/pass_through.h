// pass_through: requests the gateway has no say in, streamed both ways at the same time, without being held in memory.
#pragma once

#include "core/trace.h"
#include "gateway/shared.h"
#include "http/tunnel.h"

namespace oncekey {

// What the upstream answered, or why nothing whole came.
struct Passed {
  CallError error = CallError::none;
  bool sent = false;
  int status = 0;
  Headers headers;
  SpanId span{}; // of the call, where the request is traced
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
  // Sends what was `begun` and the rest, and passes the answer on.
  Task<void> call(Exchange& exchange, Upstream& upstream, UpstreamBreaker::Pass& pass, Millis patience,
                  const Headers& marks, std::string_view begun, Passed& passed);
  // Answers 101 and carries bytes both ways until the tunnel ends.
  Task<void> tunnel(Exchange& exchange, UpstreamCall& call, Headers headers, std::string_view reason);

  GatewayThread& thread_;
  boost::intrusive::list<Tunnel, boost::intrusive::constant_time_size<false>> tunnels_;
  bool tunnels_end_ = false;
};

} // namespace oncekey
