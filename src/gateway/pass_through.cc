#include "gateway/pass_through.h"

#include "base/enum_name.h"
#include "core/settle.h"
#include "gateway/access_log.h"
#include "gateway/new_work.h"
#include "gateway/routes.h"
#include "gateway/tracing.h"

namespace oncekey {
namespace {

// The request body on its way upstream, as a coroutine of its own beside the one that reads the response.
struct Pump {
  explicit Pump(Loop& loop) : finished(loop) {}
  bool running = false;
  bool client_broke_off = false;
  bool stop = false; // nothing more of the body is wanted
  Notice finished;
};

Task<void> pump_body(Exchange& exchange, UpstreamCall& call, Millis patience, Pump& pump) {
  while (!pump.stop) {
    std::string_view bytes;
    const Piece piece = co_await exchange.read_piece(bytes);
    if (pump.stop) co_return;
    if (piece == Piece::broken) {
      pump.client_broke_off = true;
      // Half a request must not be taken for a whole one: the upstream sees its connection end.
      call.deadline(std::chrono::steady_clock::now());
      co_return;
    }
    call.deadline(std::chrono::steady_clock::now() + patience);
    if (piece == Piece::end) {
      (void)co_await call.send_end();
      co_return;
    }
    // An upstream that has heard enough may answer and close: the answer is read all the same.
    const CallError error = co_await call.send_piece(bytes);
    if (error != CallError::none) co_return;
  }
}

Task<void> run_pump(Exchange& exchange, UpstreamCall& call, Millis patience, Pump& pump) {
  pump.running = true;
  try {
    co_await pump_body(exchange, call, patience, pump);
  } catch (const std::exception&) {
    // The upstream gets no more of the body and will not answer: the call's deadline ends it.
  }
  pump.running = false;
  pump.finished.give();
}

// So much of a body, or all of it, is here before a place at the upstream is taken.
constexpr std::size_t kReadBeforeCall = 64u << 10;

Task<void> answer_failure(Exchange& exchange, CallError error) {
  switch (error) {
    case CallError::timed_out:
      return exchange.send_problem(504, "the upstream did not answer in time");
    case CallError::broken:
    case CallError::unusable:
      return exchange.send_problem(502, "the upstream broke off or sent a malformed answer");
    case CallError::full:
      return exchange.send_problem(503, "as many calls to the upstream as may be are under way; nothing was sent");
    case CallError::none:
    case CallError::not_sent:
      break;
  }
  return exchange.send_problem(503, "the upstream could not be reached; nothing was sent to it");
}

Task<void> refuse(Exchange& exchange, Grant why, Resource resource) {
  const Refusal refusal = refusal_of(why, resource);
  if (refusal.code == RefusalCode::over_share) co_return co_await exchange.send_problem(429, refusal.detail);
  if (resource == Resource::places) co_return co_await answer_failure(exchange, CallError::full);
  co_await exchange.send_problem(503, resource == Resource::tunnels
                                          ? "as many WebSockets as may be are open; nothing was sent"
                                          : "too many bodies are held in memory; nothing was sent");
}

// The path stays out of the log: it may hold a secret. So may a method that is not a known one.
void log_failure(GatewayShared& shared, const RequestHead& head, std::string_view reason) {
  const NormalPath path(head.path());
  const Route* const route = match_route(shared.config().routes, head.method, path).route;
  const std::string_view name = route == nullptr ? std::string_view("-") : std::string_view(route->name);
  shared.log.seldom(LogLevel::warning, "upstream_failed", name,
                    {{"method", shown_method(head.method)}, {"route", name}, {"reason", reason}});
}

// The answer that `response` is the head of, as it comes.
Task<CallError> relay(Exchange& exchange, UpstreamCall& call, const ResponseHead& response, Headers headers,
                      Millis patience) {
  const bool of_head = exchange.request().method == "HEAD";
  // What a HEAD or 304 says of a length describes a body that is not sent.
  std::optional<std::uint64_t> announced;
  if (response.framing == Framing::length) announced = response.content_length;
  if (response.framing == Framing::none && !status_forbids_body(response.status) && !of_head) announced = 0;
  if (response.framing == Framing::none && (of_head || response.status == 304)) {
    if (const auto said = response.headers.get("Content-Length")) headers.add("Content-Length", *said);
  }
  bool client_there = co_await exchange.send_head(response.status, response.reason, headers, announced);
  while (client_there) {
    std::string_view piece;
    call.deadline(std::chrono::steady_clock::now() + patience);
    const CallError error = co_await call.read_piece(piece);
    if (error != CallError::none) {
      exchange.abort();
      co_return error;
    }
    if (piece.empty()) break;
    client_there = co_await exchange.send_piece(piece);
  }
  if (client_there) (void)co_await exchange.send_end();
  co_return CallError::none;
}

} // namespace

void PassThrough::end_tunnels() {
  tunnels_end_ = true;
  for (Tunnel& tunnel : tunnels_) tunnel.stop();
}

// The caller holds the place at the upstream and the connection until this returns.
Task<void> PassThrough::tunnel(Exchange& exchange, UpstreamCall& call, Headers headers, std::string_view reason) {
  GatewayShared& shared = thread_.shared;
  add_websocket_fields(headers);
  if (!co_await exchange.switch_protocols(reason, headers)) co_return;
  const Counted counted(shared.tunnels);
  Tunnel tunnel(exchange.stream(), call.stream(), thread_.loop, shared.config().timeouts.tunnel_idle);
  tunnels_.push_back(tunnel);
  if (tunnels_end_) tunnel.stop();
  const Tunnel::End end = co_await tunnel.run();
  exchange.carried(tunnel.from_client(), tunnel.from_upstream());
  if (shared.log.enabled(LogLevel::debug)) {
    shared.log.write(LogLevel::debug, "tunnel_ended", {{"reason", enum_name(end)}});
  }
}

Task<Passed> PassThrough::run(Exchange& exchange, const Route& route, const Sharer& sharer, const Headers& marks,
                              const std::string* body) {
  return run(exchange, route.state->upstream, route.policy.upstream_timeout, sharer, marks, body);
}

Task<Passed> PassThrough::run(Exchange& exchange, Upstream& upstream, Millis patience, const Sharer& sharer,
                              const Headers& marks, const std::string* body) {
  GatewayShared& shared = thread_.shared;
  Passed passed;
  // A place at the upstream is for requests that flow: a client that is still thinking does not have one.
  BufferedBytes buffered(shared, sharer);
  std::string beginning;
  if (body == nullptr && exchange.body_unread()) {
    const BodyRead read = co_await exchange.read_beginning(beginning, kReadBeforeCall,
                                                           [&](std::size_t more) { return buffered.try_hold(more); });
    body = &beginning;
    if (read == BodyRead::broken || read == BodyRead::refused) {
      passed.error = CallError::not_sent;
      if (read == BodyRead::refused)
        co_await refuse(exchange, buffered.why(), Resource::buffered_bytes);
      else if (exchange.fault())
        co_await exchange.send_problem(exchange.fault().status, exchange.fault().detail);
      co_return passed;
    }
  }
  const bool websocket = asks_for_websocket(exchange.request());
  Holding tunnel_place(shared.shares, Resource::tunnels, sharer.address(), sharer.account());
  Holding place(shared.shares, Resource::places, sharer.address(), sharer.account());
  const Grant tunnel_grant = websocket ? tunnel_place.try_add(1) : Grant::given;
  const Grant grant = tunnel_grant == Grant::given ? place.try_add(1) : tunnel_grant;
  if (grant != Grant::given) {
    passed.error = CallError::full;
    co_await refuse(exchange, grant, tunnel_grant == Grant::given ? Resource::places : Resource::tunnels);
    co_return passed;
  }
  const MonotonicTime start = std::chrono::steady_clock::now();
  std::optional<UpstreamBreaker::Pass> pass = upstream.breaker.ask(start);
  if (!pass) {
    upstream.metrics.breaker_refusals.Increment();
    passed.error = CallError::not_sent;
    co_await answer_failure(exchange, passed.error);
    co_return passed;
  }
  const std::string_view begun = body != nullptr ? std::string_view(*body) : std::string_view{};
  co_await call(exchange, upstream, *pass, patience, marks, begun, passed);
  // Not where nothing was sent.
  if (exchange.note() != nullptr && passed.sent) exchange.note()->upstream = std::chrono::steady_clock::now() - start;
  const bool failed = passed.error != CallError::none;
  note_step(exchange.trace(), "upstream", start, passed.span, failed ? enum_name(passed.error) : std::string_view());
  co_return passed;
}

Task<void> PassThrough::call(Exchange& exchange, Upstream& upstream, UpstreamBreaker::Pass& pass, Millis patience,
                             const Headers& marks, std::string_view begun, Passed& passed) {
  UpstreamCall call(thread_.pool_of(upstream));
  const RequestHead& head = exchange.request();
  const bool traced = exchange.trace() != nullptr;
  if (traced) passed.span = new_span_id();
  std::vector<std::string_view> replaced;
  if (traced) replaced.push_back("traceparent");
  UpstreamRequest out = forward(head, {exchange.peer(), exchange.secure()}, thread_.shared.self, replaced);
  if (traced) out.headers.add("traceparent", traceparent_for_upstream(exchange.trace(), passed.span));
  out.websocket = asks_for_websocket(head);
  if (out.websocket) add_websocket_fields(out.headers);
  const bool streaming = exchange.body_unread();
  const Framing framing = streaming || head.framing == Framing::none ? head.framing : Framing::length;
  CallError& error = passed.error;
  error = co_await call.send(out, framing, streaming ? head.content_length : begun.size(),
                             streaming ? std::string_view{} : begun, std::chrono::steady_clock::now() + patience);
  tell_breaker(thread_.shared.log, upstream, pass, error, call.reason());
  if (streaming && error == CallError::none) error = co_await call.send_piece(begun);
  if (error != CallError::none) {
    log_failure(thread_.shared, head, call.reason());
    co_return co_await answer_failure(exchange, error);
  }
  passed.sent = true;

  Pump pump(thread_.loop);
  if (streaming) {
    co_await exchange.invite_body();
    spawn(run_pump(exchange, call, patience, pump));
  }
  ResponseHead response;
  for (;;) {
    error = co_await call.read_head(response);
    if (error != CallError::none || response.status >= 200 || response.status == 101) break;
    if (response.status != 100) {
      co_await exchange.send_interim(response.status, response.reason, end_to_end(response.headers));
    }
  }
  if (error == CallError::none) {
    Headers headers = end_to_end(response.headers);
    // What the upstream says to us alone stays here.
    if (headers.has(kOutcomeHeader)) headers = fields_but(headers, kOutcomeHeader);
    append(headers, marks);
    if (response.status == 101)
      co_await tunnel(exchange, call, std::move(headers), response.reason);
    else
      error = co_await relay(exchange, call, response, std::move(headers), patience);
    if (error != CallError::none) log_failure(thread_.shared, head, call.reason());
  } else if (pump.client_broke_off && exchange.client_gone()) {
    exchange.abort();
  } else if (pump.client_broke_off && exchange.fault()) {
    co_await exchange.send_problem(exchange.fault().status, exchange.fault().detail);
  } else {
    log_failure(thread_.shared, head, call.reason());
    co_await answer_failure(exchange, error);
  }

  if (pump.running) {
    // The answer is out and the body is not in.
    pump.stop = true;
    exchange.stop_reading();
    call.deadline(std::chrono::steady_clock::now());
    while (pump.running) co_await pump.finished.wait();
  }
  passed.status = response.status;
  passed.headers = std::move(response.headers);
}

} // namespace oncekey
