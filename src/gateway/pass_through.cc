#include "gateway/pass_through.h"

#include "core/settle.h"
#include "gateway/access_log.h"
#include "gateway/new_work.h"
#include "gateway/routes.h"

#include <exception>
#include <utility>

namespace oncekey {
namespace {

// The request body on its way upstream, as a coroutine of its own beside the one that reads the response.
struct Pump {
  explicit Pump(asio::io_context& context) : finished(context) { finished.expires_at(MonotonicTime::max()); }
  bool running = false;
  bool client_broke_off = false;
  bool stop = false; // nothing more of the body is wanted
  // Never expires; cancelled when the pump ends.
  asio::basic_waitable_timer<std::chrono::steady_clock, asio::wait_traits<std::chrono::steady_clock>, Executor>
      finished;
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
  pump.finished.cancel();
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
  const Refusal refusal = refusal_of(why, resource);
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

struct PassTerms {
  Upstream& upstream;
  Millis patience;
  const Headers& marks;
};

// One request on its way through.
class Passage {
 public:
  Passage(GatewayThread& thread, TunnelList& tunnels, Exchange& exchange, const PassTerms& terms, const Sharer& sharer,
          const std::string* body)
      : thread_(thread),
        shared_(thread.shared),
        tunnels_(tunnels),
        exchange_(exchange),
        head_(exchange.request()),
        terms_(terms),
        websocket_(asks_for_websocket(head_)),
        body_(body),
        buffered_(shared_, sharer),
        tunnel_place_(shared_.shares, Resource::tunnels, sharer.address(), sharer.account()),
        place_(shared_.shares, Resource::places, sharer.address(), sharer.account()),
        call_(thread.pool_of(terms.upstream)),
        pump_(thread.timers.context()) {}

  Task<void> run(Passed& passed);

 private:
  // Each is false when the request has been answered and goes no further.
  Task<bool> read_beginning();
  Task<bool> read_first_bytes();
  Task<bool> take_places();
  Task<bool> refuse_place(Grant grant, Resource resource);
  Task<bool> send();
  Task<void> answer();
  Task<void> relay();
  // Answers 101 and carries bytes both ways until the tunnel ends.
  Task<void> tunnel();
  Task<void> answer_no_response();
  Task<void> stop_pump();
  Headers answer_headers();
  void log_failure();

  GatewayThread& thread_;
  GatewayShared& shared_;
  TunnelList& tunnels_;
  Exchange& exchange_;
  const RequestHead& head_;
  const PassTerms& terms_;
  const bool websocket_;
  const std::string* body_; // what was read of it; null before anything was
  BufferedBytes buffered_;
  std::string beginning_;
  Holding tunnel_place_;
  Holding place_;
  UpstreamCall call_;
  Pump pump_;
  MonotonicTime start_;
  CallError error_ = CallError::none;
  ResponseHead response_;
};

Task<void> Passage::run(Passed& passed) {
  bool going = co_await read_beginning();
  if (going) going = co_await take_places();
  if (going) going = co_await send();
  if (going) {
    co_await answer();
    if (pump_.running) co_await stop_pump();
    if (exchange_.note() != nullptr) exchange_.note()->upstream = std::chrono::steady_clock::now() - start_;
  }
  passed.error = error_;
  passed.status = response_.status;
  passed.headers = std::move(response_.headers);
}

// A place at the upstream is for requests that flow: a client that is still thinking does not have one.
Task<bool> Passage::read_beginning() {
  if (body_ != nullptr || !exchange_.body_unread()) return true;
  return read_first_bytes();
}

Task<bool> Passage::read_first_bytes() {
  const BodyRead read = co_await exchange_.read_beginning(
      beginning_, kReadBeforeCall, [this](std::size_t more) { return buffered_.try_hold(more); });
  body_ = &beginning_;
  if (read != BodyRead::broken && read != BodyRead::refused) co_return true;
  error_ = CallError::not_sent;
  if (read == BodyRead::refused) {
    co_await refuse(exchange_, buffered_.why(), Resource::buffered_bytes);
  } else if (exchange_.fault()) {
    co_await exchange_.send_problem(exchange_.fault().status, exchange_.fault().detail);
  }
  co_return false;
}

Task<bool> Passage::take_places() {
  Resource resource = Resource::tunnels;
  Grant grant = websocket_ ? tunnel_place_.try_add(1) : Grant::given;
  if (grant == Grant::given) {
    resource = Resource::places;
    grant = place_.try_add(1);
  }
  if (grant == Grant::given) return true;
  return refuse_place(grant, resource);
}

Task<bool> Passage::refuse_place(Grant grant, Resource resource) {
  error_ = CallError::full;
  co_await refuse(exchange_, grant, resource);
  co_return false;
}

Task<bool> Passage::send() {
  UpstreamRequest out = forward(head_, {exchange_.peer(), exchange_.secure()}, shared_.self, {});
  out.websocket = websocket_;
  if (websocket_) add_websocket_fields(out.headers);
  start_ = std::chrono::steady_clock::now();
  std::optional<UpstreamBreaker::Pass> pass = terms_.upstream.breaker.ask(start_);
  if (!pass) {
    terms_.upstream.metrics.breaker_refusals.Increment();
    error_ = CallError::not_sent;
    co_await answer_failure(exchange_, error_);
    co_return false;
  }
  const std::string_view begun = body_ != nullptr ? std::string_view(*body_) : std::string_view{};
  const bool streaming = exchange_.body_unread();
  const Framing whole = head_.framing == Framing::none ? Framing::none : Framing::length;
  const std::string_view at_once = streaming ? std::string_view{} : begun;
  error_ = co_await call_.send(out, streaming ? head_.framing : whole, streaming ? head_.content_length : begun.size(),
                               at_once, start_ + terms_.patience);
  tell_breaker(shared_.log, terms_.upstream, *pass, error_, call_.reason());
  if (streaming && error_ == CallError::none) error_ = co_await call_.send_piece(begun);
  if (error_ != CallError::none) {
    log_failure();
    co_await answer_failure(exchange_, error_);
    co_return false;
  }
  if (streaming) {
    co_await exchange_.invite_body();
    spawn(run_pump(exchange_, call_, terms_.patience, pump_));
  }
  co_return true;
}

Task<void> Passage::answer() {
  for (;;) {
    error_ = co_await call_.read_head(response_);
    if (error_ != CallError::none || response_.status >= 200 || response_.status == 101) break;
    if (response_.status != 100) {
      co_await exchange_.send_interim(response_.status, response_.reason, end_to_end(response_));
    }
  }
  if (error_ != CallError::none) {
    co_await answer_no_response();
  } else if (response_.status == 101) {
    co_await tunnel();
  } else {
    co_await relay();
  }
}

Headers Passage::answer_headers() { return with_marks(for_the_client(end_to_end(response_)), terms_.marks); }

Task<void> Passage::relay() {
  const bool of_head = head_.method == "HEAD";
  // What a HEAD or 304 says of a length describes a body that is not sent.
  std::optional<std::uint64_t> announced;
  if (response_.framing == Framing::length) announced = response_.content_length;
  if (response_.framing == Framing::none && !status_forbids_body(response_.status) && !of_head) announced = 0;
  Headers headers = answer_headers();
  if (response_.framing == Framing::none && (of_head || response_.status == 304)) {
    if (const auto said = response_.headers.get("Content-Length")) headers.add("Content-Length", *said);
  }
  bool client_there = co_await exchange_.send_head(response_.status, response_.reason, headers, announced);
  while (client_there) {
    std::string_view piece;
    call_.deadline(std::chrono::steady_clock::now() + terms_.patience);
    error_ = co_await call_.read_piece(piece);
    if (error_ != CallError::none || piece.empty()) break;
    client_there = co_await exchange_.send_piece(piece);
  }
  if (error_ != CallError::none) {
    log_failure();
    exchange_.abort();
  } else if (client_there) {
    (void)co_await exchange_.send_end();
  }
}

// The place at the upstream and the connection are held until this returns.
Task<void> Passage::tunnel() {
  Headers headers = answer_headers();
  add_websocket_fields(headers);
  if (!co_await exchange_.switch_protocols(response_.reason, headers)) co_return;
  const Counted counted(shared_.tunnels);
  Tunnel tunnel(exchange_.stream(), call_.stream(), thread_.timers, shared_.config().timeouts.tunnel_idle);
  tunnels_.open.push_back(tunnel);
  if (tunnels_.end) tunnel.stop();
  const Tunnel::End end = co_await tunnel.run();
  exchange_.carried(tunnel.from_client(), tunnel.from_upstream());
  if (shared_.log.enabled(LogLevel::debug)) {
    shared_.log.write(LogLevel::debug, "tunnel_ended", {{"reason", to_string(end)}});
  }
}

Task<void> Passage::answer_no_response() {
  if (pump_.client_broke_off && exchange_.client_gone()) {
    exchange_.abort();
  } else if (pump_.client_broke_off && exchange_.fault()) {
    co_await exchange_.send_problem(exchange_.fault().status, exchange_.fault().detail);
  } else {
    log_failure();
    co_await answer_failure(exchange_, error_);
  }
}

// The answer is out and the body is not in.
Task<void> Passage::stop_pump() {
  pump_.stop = true;
  exchange_.stop_reading();
  call_.deadline(std::chrono::steady_clock::now());
  while (pump_.running) co_await pump_.finished.async_wait(use_task);
}

// The path stays out of the log: it may hold a secret. So may a method that is not a known one.
void Passage::log_failure() {
  const NormalPath path(head_.path());
  const Route* const route = match_route(shared_.config().routes, head_.method, path).route;
  const std::string_view name = route == nullptr ? std::string_view("-") : std::string_view(route->name);
  shared_.log.seldom(LogLevel::warning, "upstream_failed", name,
                     {{"method", shown_method(head_.method)}, {"route", name}, {"reason", call_.reason()}});
}

} // namespace

void PassThrough::end_tunnels() {
  tunnels_.end = true;
  for (Tunnel& tunnel : tunnels_.open) tunnel.stop();
}

Task<Passed> PassThrough::run(Exchange& exchange, const Route& route, const Sharer& sharer, const Headers& marks,
                              const std::string* body) {
  return run(exchange, route.state->upstream, route.policy.upstream_timeout, sharer, marks, body);
}

Task<Passed> PassThrough::run(Exchange& exchange, Upstream& upstream, Millis patience, const Sharer& sharer,
                              const Headers& marks, const std::string* body) {
  const PassTerms terms{upstream, patience, marks};
  Passage passage(thread_, tunnels_, exchange, terms, sharer, body);
  Passed passed;
  co_await passage.run(passed);
  co_return passed;
}

} // namespace oncekey
