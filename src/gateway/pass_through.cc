// Requests the gateway has no say in: streamed both ways, at the same time, without being held in memory.
#include "core/settle.h"
#include "gateway/access_log.h"
#include "gateway/gateway.h"

#include <exception>
#include <utility>

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

// What the upstream says to us alone stays here.
Headers for_the_client(Headers headers) {
  if (!headers.has(kOutcomeHeader)) return headers;
  Headers kept;
  for (std::size_t i = 0; i < headers.size(); ++i) {
    const Field field = headers[i];
    if (!equal_ignoring_case(field.name, kOutcomeHeader)) kept.add(field.name, field.value);
  }
  return kept;
}

Headers with_marks(Headers headers, const Headers& marks) {
  for (std::size_t i = 0; i < marks.size(); ++i) headers.add(marks[i].name, marks[i].value);
  return headers;
}

// So much of a body, or all of it, is here before a place at the upstream is taken.
constexpr std::size_t kReadBeforeCall = 64u << 10;

Task<void> answer_failure(Exchange& exchange, CallError error) {
  switch (error) {
    case CallError::timed_out:
      co_await exchange.send_problem(504, "the upstream did not answer in time");
      break;
    case CallError::broken:
    case CallError::unusable:
      co_await exchange.send_problem(502, "the upstream broke off or sent a malformed answer");
      break;
    case CallError::full:
      co_await exchange.send_problem(503, "as many calls to the upstream as may be are under way; nothing was sent");
      break;
    case CallError::none:
    case CallError::not_sent:
      co_await exchange.send_problem(503, "the upstream could not be reached; nothing was sent to it");
      break;
  }
}

Task<void> refuse(Exchange& exchange, Grant why, Resource resource) {
  const Refusal refusal = refusal_of(why, resource, {});
  const int status = refusal.code == RefusalCode::over_share ? 429 : 503;
  if (status == 429) {
    co_await exchange.send_problem(status, refusal.detail);
  } else if (resource == Resource::places) {
    co_await answer_failure(exchange, CallError::full);
  } else if (resource == Resource::tunnels) {
    co_await exchange.send_problem(status, "as many WebSockets as may be are open; nothing was sent");
  } else {
    co_await exchange.send_problem(status, "too many bodies are held in memory; nothing was sent");
  }
}

} // namespace

// The path stays out of the log: it may hold a secret. So may a method that nobody knows.
void Gateway::tell_failed_pass(const RequestHead& head, std::string_view reason) {
  const NormalPath path(head.path());
  const Route* const route = match_route(shared_.config().routes, head.method, path).route;
  const std::string_view name = route == nullptr ? std::string_view("-") : std::string_view(route->name);
  shared_.log.seldom(LogLevel::warning, "upstream_failed", name,
                     {{"method", shown_method(head.method)}, {"route", name}, {"reason", reason}});
}

void Gateway::end_tunnels() {
  tunnels_end_ = true;
  for (Tunnel& tunnel : tunnels_) tunnel.stop();
}

// The caller holds the place at the upstream and the connection until this returns.
Task<void> Gateway::tunnel(Exchange& exchange, UpstreamCall& call, const Headers& headers, std::string_view reason) {
  Headers with_upgrade = headers;
  add_websocket_fields(with_upgrade);
  if (!co_await exchange.switch_protocols(reason, with_upgrade)) co_return;
  const Counted counted(shared_.tunnels);
  Tunnel tunnel(exchange.stream(), call.stream(), timers_, shared_.config().timeouts.tunnel_idle);
  tunnels_.push_back(tunnel);
  if (tunnels_end_) tunnel.stop();
  const Tunnel::End end = co_await tunnel.run();
  exchange.carried(tunnel.from_client(), tunnel.from_upstream());
  if (shared_.log.enabled(LogLevel::debug)) {
    shared_.log.write(LogLevel::debug, "tunnel_ended", {{"reason", to_string(end)}});
  }
}

Task<void> Gateway::pass_through(Exchange& exchange, const Route& route, const Sharer& sharer, const Headers& marks,
                                 const std::string* body, Passed* passed) {
  return pass_through(exchange, route.state->upstream, sharer, route.policy.upstream_timeout, marks, body, passed);
}

Task<void> Gateway::pass_through(Exchange& exchange, Upstream& upstream, const Sharer& sharer, Millis patience,
                                 const Headers& marks, const std::string* body, Passed* passed) {
  const RequestHead& head = exchange.request();
  const auto fails = [&](CallError error) {
    if (passed != nullptr) passed->error = error;
  };
  // A place at the upstream is for requests that flow: a client that is still thinking does not have one.
  BufferedBytes buffered(shared_, sharer);
  std::string beginning;
  if (body == nullptr && exchange.body_unread()) {
    const BodyRead read = co_await exchange.read_beginning(beginning, kReadBeforeCall,
                                                           [&](std::size_t more) { return buffered.try_hold(more); });
    if (read == BodyRead::broken || read == BodyRead::refused) {
      fails(CallError::not_sent);
      if (read == BodyRead::refused)
        co_await refuse(exchange, buffered.why(), Resource::buffered_bytes);
      else if (exchange.fault())
        co_await exchange.send_problem(exchange.fault().status, exchange.fault().detail);
      co_return;
    }
    body = &beginning;
  }
  const bool websocket = asks_for_websocket(head);
  Holding tunnel_place(shared_.shares, Resource::tunnels, sharer.address(), sharer.account());
  if (const Grant grant = websocket ? tunnel_place.try_add(1) : Grant::given; grant != Grant::given) {
    fails(CallError::full);
    co_await refuse(exchange, grant, Resource::tunnels);
    co_return;
  }
  Holding place(shared_.shares, Resource::places, sharer.address(), sharer.account());
  if (const Grant grant = place.try_add(1); grant != Grant::given) {
    fails(CallError::full);
    co_await refuse(exchange, grant, Resource::places);
    co_return;
  }
  UpstreamRequest out = forward(head, {exchange.peer(), exchange.secure()}, shared_.self, {});
  out.websocket = websocket;
  if (websocket) add_websocket_fields(out.headers);
  const MonotonicTime start = std::chrono::steady_clock::now();
  std::optional<UpstreamBreaker::Pass> pass = upstream.breaker.ask(start);
  if (!pass) {
    upstream.metrics.breaker_refusals.Increment();
    fails(CallError::not_sent);
    co_await answer_failure(exchange, CallError::not_sent);
    co_return;
  }
  UpstreamCall call(pool_of(upstream));
  const MonotonicTime due = start + patience;
  const std::string_view begun = body != nullptr ? std::string_view(*body) : std::string_view{};
  const bool streaming = exchange.body_unread();
  CallError error = CallError::none;
  if (streaming) {
    error = co_await call.send(out, head.framing, head.content_length, {}, due);
    tell_breaker(upstream, pass, error, call.reason());
    if (error == CallError::none) error = co_await call.send_piece(begun);
  } else {
    const Framing framing = head.framing == Framing::none ? Framing::none : Framing::length;
    error = co_await call.send(out, framing, begun.size(), begun, due);
    tell_breaker(upstream, pass, error, call.reason());
  }
  if (error != CallError::none) {
    tell_failed_pass(head, call.reason());
    fails(error);
    co_await answer_failure(exchange, error);
    co_return;
  }

  Pump pump(timers_);
  if (streaming) {
    co_await exchange.invite_body();
    spawn(run_pump(exchange, call, patience, pump));
  }

  ResponseHead response;
  for (;;) {
    error = co_await call.read_head(response);
    if (error != CallError::none || response.status >= 200 || response.status == 101) break;
    if (response.status != 100) {
      co_await exchange.send_interim(response.status, response.reason, end_to_end(response));
    }
  }

  if (error == CallError::none && response.status == 101) {
    const Headers headers = with_marks(for_the_client(end_to_end(response)), marks);
    co_await tunnel(exchange, call, headers, response.reason);
  } else if (error == CallError::none) {
    // What a HEAD or 304 says of a length describes a body that is not sent.
    std::optional<std::uint64_t> announced;
    if (response.framing == Framing::length) announced = response.content_length;
    if (response.framing == Framing::none && !status_forbids_body(response.status) && head.method != "HEAD")
      announced = 0;
    Headers headers = with_marks(for_the_client(end_to_end(response)), marks);
    if (response.framing == Framing::none && (head.method == "HEAD" || response.status == 304)) {
      if (const auto said = response.headers.get("Content-Length")) headers.add("Content-Length", *said);
    }
    bool client_there = co_await exchange.send_head(response.status, response.reason, headers, announced);
    while (client_there) {
      std::string_view piece;
      call.deadline(std::chrono::steady_clock::now() + patience);
      error = co_await call.read_piece(piece);
      if (error != CallError::none || piece.empty()) break;
      client_there = co_await exchange.send_piece(piece);
    }
    if (error != CallError::none) {
      tell_failed_pass(head, call.reason());
      exchange.abort();
    } else if (client_there) {
      (void)co_await exchange.send_end();
    }
  } else if (pump.client_broke_off && exchange.client_gone()) {
    exchange.abort();
  } else if (pump.client_broke_off && exchange.fault()) {
    co_await exchange.send_problem(exchange.fault().status, exchange.fault().detail);
  } else {
    tell_failed_pass(head, call.reason());
    co_await answer_failure(exchange, error);
  }

  if (pump.running) {
    // The answer is out and the body is not in.
    pump.stop = true;
    exchange.stop_reading();
    call.deadline(std::chrono::steady_clock::now());
    while (pump.running) co_await pump.finished.wait();
  }
  if (exchange.note() != nullptr) exchange.note()->upstream = std::chrono::steady_clock::now() - start;
  if (passed != nullptr) {
    passed->error = error;
    passed->status = response.status;
    passed->headers = std::move(response.headers);
  }
}

} // namespace oncekey
