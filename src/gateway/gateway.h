// gateway: the life of a request, from its head to its answer. docs/LIFE_OF_A_REQUEST.md tells the same in prose.
//
//   parse → route → principal → rate limit → key → read body → fingerprint → claim → decide → forward → settle → record
//   → reply http    here    └──────────────── Admission ───────────────┘   └─ KeyedFlow ─┘   └──────────── Execution
//   ────────────┘
//
// Decisions are made by the pure functions of the core (screen, admit, decide, settle). What is in this room is their
// order and the effects between them. One Gateway runs per thread; what they share is in GatewayShared.
#pragma once

#include "gateway/pass_through.h"
#include "gateway/replier.h"
#include "gateway/routes.h"
#include "http/server.h"

namespace oncekey {

class Gateway final : public Handler {
 public:
  // `pools` are those of this thread.
  Gateway(GatewayShared& shared, UpstreamPools& pools, Loop& loop);

  Task<void> handle(Exchange& exchange) override;
  // Closes the tunnels of this thread, on this thread, and lets no new one begin.
  void end_tunnels() { pass_through_.end_tunnels(); }

 private:
  Task<void> handle_routed(Exchange& exchange, const Route& route);
  Task<void> handle_limited(Exchange& exchange, const Generation& generation, Task<bool> within_rate);
  Task<void> handle_by_path(Exchange& exchange, const Generation& generation);
  Task<void> handle_unrouted(Exchange& exchange, const Generation& generation);
  Task<void> handle_ambiguous(Exchange& exchange, const Route& route);
  Task<void> answer_loop(Exchange& exchange);
  Task<void> send_policies(Exchange& exchange, const Generation& generation);
  Task<void> pass(Exchange& exchange, const Route& route, const Sharer& sharer, const std::string* body);
  // A key on a request that no route protects does nothing: the operator should know.
  void tell_ignored_key(const RequestHead& head, const NormalPath& path);

  GatewayThread thread_;
  GatewayShared& shared_;
  PassThrough pass_through_;
  Timer pulse_; // notices a pause of the process
};

} // namespace oncekey
