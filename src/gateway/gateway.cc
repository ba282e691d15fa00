#include "gateway/gateway.h"

#include "core/status_url.h"
#include "gateway/access_log.h"
#include "gateway/keyed_flow.h"

namespace oncekey {
namespace {

// What a page may want to read of the gateway's own answers beside what browsers always show.
constexpr std::string_view kExposedHeaders =
    "Retry-After, Idempotency-Key, Idempotent-Replayed, Location, Link, Request-Id, Stripe-Should-Retry, "
    "RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset";
constexpr std::string_view kPolicyDocument = "/.well-known/idempotency";

// What a request that goes through is counted as.
std::string_view passed_as(const RequestHead& head) { return asks_for_websocket(head) ? "websocket" : "pass"; }

// Vary also without an Origin: a cache in between must not answer one origin with what another got.
void allow_origin(Exchange& exchange, const std::vector<std::string>& allowed) {
  const std::optional<std::string_view> origin = exchange.request().headers.get("Origin");
  const bool all = allowed.front() == "*";
  if (!all) exchange.add_to_own_answer("Vary", "Origin");
  if (!origin || (!all && std::find(allowed.begin(), allowed.end(), *origin) == allowed.end())) return;
  exchange.add_to_own_answer("Access-Control-Allow-Origin", all ? std::string_view("*") : *origin);
  // Pages send cookies and read the answer only where both sides agree to; browsers refuse that for all origins alike.
  if (!all) exchange.add_to_own_answer("Access-Control-Allow-Credentials", "true");
  exchange.add_to_own_answer("Access-Control-Expose-Headers", kExposedHeaders);
}

bool asks_for_policies(const RequestHead& head, const NormalPath& path, const Generation& generation) {
  return (head.method == "GET" || head.method == "HEAD") && path.text() == kPolicyDocument &&
         !generation.published.empty();
}

} // namespace

Gateway::Gateway(GatewayShared& shared, UpstreamPools& pools, Loop& loop)
    : thread_(shared, pools, loop), shared_(shared), pass_through_(thread_), pulse_(loop, [this] {
        shared_.live_calls.renew_after_a_pause(shared_.store);
        pulse_.after(kPulse);
      }) {
  pulse_.after(kPulse);
}

Task<void> Gateway::handle(Exchange& exchange) {
  // A reload in the middle of this request does not concern it.
  const Generation& generation = shared_.generation();
  if (!generation.config.cors_origins.empty()) allow_origin(exchange, generation.config.cors_origins);
  Task<bool> within_rate = within_address_rate(shared_, exchange);
  if (!within_rate.await_ready()) return handle_limited(exchange, generation, std::move(within_rate));
  return within_rate.await_resume() ? handle_by_path(exchange, generation) : std::monostate{};
}

Task<void> Gateway::handle_limited(Exchange& exchange, const Generation& generation, Task<bool> within_rate) {
  const bool is_within = co_await std::move(within_rate);
  if (is_within) co_await handle_by_path(exchange, generation);
}

// Not a coroutine, and neither is handle(): where nothing waits, the request begins with its first coroutine below.
Task<void> Gateway::handle_by_path(Exchange& exchange, const Generation& generation) {
  const RequestHead& head = exchange.request();
  const NormalPath path(head.path());
  const RouteMatch match = match_route(generation.config.routes, head.method, path);
  if (loops(shared_.self, head.headers)) return answer_loop(exchange);
  if (asks_for_policies(head, path, generation)) return send_policies(exchange, generation);
  if (generation.has_status_urls && is_status_path(path.text())) return answer_status(thread_, exchange);
  if (match.route == nullptr) return handle_unrouted(exchange, generation);
  if (match.ambiguous) return handle_ambiguous(exchange, *match.route);
  return handle_routed(exchange, *match.route);
}

Task<void> Gateway::handle_routed(Exchange& exchange, const Route& route) {
  const bool observing = route.policy.mode == Mode::observe;
  Replier replier(thread_, route.policy, route.state->metrics, &exchange);
  Admission admission(thread_, exchange, route);
  switch (co_await admission.ask()) {
    case Admission::Outcome::answered:
      co_return;
    case Admission::Outcome::passes:
      replier.count(passed_as(exchange.request()));
      co_return co_await pass(exchange, route, admission.sharer(), admission.body());
    case Admission::Outcome::refused:
      if (observing) {
        replier.count("observed_refusal");
        co_await pass(exchange, route, admission.sharer(), admission.body());
      } else {
        co_await replier.refuse(admission.refusal());
      }
      co_return;
    case Admission::Outcome::keyed:
      break;
  }
  if (observing) {
    co_await observe(thread_, pass_through_, admission, replier);
  } else {
    KeyedFlow flow(thread_, pass_through_, admission, replier);
    co_await flow.run();
  }
}

Task<void> Gateway::pass(Exchange& exchange, const Route& route, const Sharer& sharer, const std::string* body) {
  (void)co_await pass_through_.run(exchange, route, sharer, PassThrough::kNoMarks, body);
}

Task<void> Gateway::handle_unrouted(Exchange& exchange, const Generation& generation) {
  const RouteMetrics& metrics = shared_.metrics.no_route();
  if (co_await refuse_stripping(exchange, metrics)) co_return;
  // A path that a route protects for other methods has that route's keys.
  const RequestHead& head = exchange.request();
  const NormalPath path(head.path());
  const Route* const of_path = route_of_path(generation.config.routes, path.text());
  const Policy& policy = of_path != nullptr ? of_path->policy : shared_.no_policy;
  if (asks_for_websocket(head) && has_key_header(policy, head.headers)) {
    Replier replier(thread_, policy, metrics, &exchange);
    const Refusal refusal = no_websocket();
    co_return co_await replier.refuse(refusal);
  }
  // The path says where a request goes; the methods say whether it is protected there.
  Upstream* const upstream = of_path != nullptr ? &of_path->state->upstream : shared_.upstreams.of_no_route();
  if (upstream == nullptr) {
    metrics.count("no_upstream", exchange);
    co_return co_await exchange.send_problem(404, "this gateway has no upstream for this path");
  }
  metrics.count(passed_as(head), exchange);
  tell_ignored_key(head, path);
  const Sharer sharer = sharer_of(shared_, exchange);
  (void)co_await pass_through_.run(exchange, *upstream, generation.config.upstream_timeout, sharer,
                                   PassThrough::kNoMarks, nullptr);
}

Task<void> Gateway::handle_ambiguous(Exchange& exchange, const Route& route) {
  Replier replier(thread_, route.policy, route.state->metrics, &exchange);
  if (route.policy.mode == Mode::observe) {
    replier.count("observed_refusal");
    const Sharer sharer = sharer_of(shared_, exchange);
    co_return co_await pass(exchange, route, sharer, nullptr);
  }
  const NormalPath path(exchange.request().path());
  const Refusal refusal{RefusalCode::path_ambiguous, path.why_ambiguous(), std::nullopt, {}};
  co_await replier.refuse(refusal);
}

Task<void> Gateway::answer_loop(Exchange& exchange) {
  shared_.metrics.no_route().count("loop", exchange);
  shared_.log.seldom(LogLevel::error, "loop", {}, {{"next", "check the upstream setting"}});
  co_await exchange.send_problem(508,
                                 "this request has passed through this gateway before: check the upstream setting");
}

Task<void> Gateway::send_policies(Exchange& exchange, const Generation& generation) {
  shared_.metrics.no_route().count("well_known", exchange);
  Headers headers;
  headers.add("Content-Type", "application/json");
  headers.add("Cache-Control", "max-age=300");
  exchange.answer_is_own();
  co_await exchange.send(200, {}, headers, generation.published);
}

void Gateway::tell_ignored_key(const RequestHead& head, const NormalPath& path) {
  if (!head.headers.has("Idempotency-Key")) return;
  if (head.method == "GET" || head.method == "HEAD" || head.method == "OPTIONS") return; // nothing to protect
  shared_.metrics.ignored_keys.Increment();
  const std::vector<Route>& routes = shared_.config().routes;
  const auto route = std::find_if(routes.begin(), routes.end(), [&](const Route& candidate) {
    return glob_matches(candidate.path, path.text(), candidate.policy.path_case);
  });
  const std::string_view name = route == routes.end() ? std::string_view("-") : std::string_view(route->name);
  shared_.log.seldom(LogLevel::info, "key_ignored", name,
                     {{"method", shown_method(head.method)},
                      {"route", name},
                      {"reason", route == routes.end() ? "no route has this path"
                                                       : "the route of this path does not protect this method"},
                      {"next", "the request passed unprotected; to protect it, change path or methods of a route"}},
                     kHintEvery);
}

} // namespace oncekey
