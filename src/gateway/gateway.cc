#include "gateway/gateway.h"

#include "core/status_url.h"
#include "gateway/access_log.h"
#include "gateway/compression.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

namespace oncekey {
namespace {

// As much of a path as a person wants to read in a listing.
constexpr std::size_t kShownTargetMax = 1024;
// Hints for operators: said once a minute, however often a client causes them.
constexpr std::chrono::seconds kHintEvery{60};
// What a page may want to read of the gateway's own answers beside what browsers always show.
constexpr std::string_view kExposedHeaders =
    "Retry-After, Idempotency-Key, Idempotent-Replayed, Location, Link, Request-Id, Stripe-Should-Retry, "
    "RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset";
constexpr std::string_view kPolicyDocument = "/.well-known/idempotency";

// How often a request may find its record changed under its hands before it gives up. Each turn means that somebody
// else made progress, so that even two are rare.
constexpr int kTurnsMax = 16;

// The key as it came in its header, for the echo; the parsed one where it came from elsewhere.
std::string key_to_echo(const Policy& policy, const RequestHead& head, const Admitted& admitted) {
  for (const KeySource& source : policy.key_from) {
    if (source.kind != KeySource::Kind::header) continue;
    if (const auto value = head.headers.get(source.name)) return std::string(*value);
  }
  return admitted.key;
}

// Whether the request has a key header of the policy, whatever is in it.
bool has_key_header(const Policy& policy, const Headers& headers) {
  return std::any_of(policy.key_from.begin(), policy.key_from.end(), [&](const KeySource& source) {
    return source.kind == KeySource::Kind::header && headers.has(source.name);
  });
}

constexpr std::string_view kOpenWithoutKey = "Open it without a key.";

Refusal no_websocket(std::string_view detail) {
  return {RefusalCode::upgrade_with_key, std::string(detail), std::nullopt, {}};
}

// What a request that goes through is counted as.
std::string_view passed_as(const RequestHead& head) { return asks_for_websocket(head) ? "websocket" : "pass"; }

// Whether a request that may begin nothing new gets no answer from what was found. Beyond a rate only replays are
// answered; an abandoned claim would have to be taken over.
bool needs_new_work(const Decision& decision, const ClaimAnswer& found, const Limited& limited) {
  if (decision.verdict != Verdict::in_progress) return false;
  const Found& record = std::get<Found>(found);
  return limited.refusal || record.record->lease_over(record.now);
}

// What a record takes before it has an answer: its fixed fields and the texts for people.
std::uint64_t claim_bytes(const KeyedRequest& request) {
  constexpr std::uint64_t kFixedBytes = 192;
  return kFixedBytes + request.admitted.key.size() + request.route.name.size() +
         std::min<std::size_t>(request.head.path().size(), kShownTargetMax);
}

} // namespace

std::string make_request_id() {
  static constexpr char kAlphabet[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZabcdefghjkmnpqrstvwxyz";
  thread_local std::mt19937_64 generator(random_u64());
  std::string id = "req_";
  for (int i = 0; i < 16; ++i) id.push_back(kAlphabet[generator() % (sizeof kAlphabet - 1)]);
  return id;
}

Gateway::Gateway(GatewayShared& shared, UpstreamPools& pools, Loop& timers)
    : shared_(shared),
      pools_(pools),
      timers_(timers),
      wakeups_(timers),
      recent_accounts_(shared.shares),
      pulse_(timers, [this] {
        shared_.live_calls.renew_after_a_pause(shared_.store);
        pulse_.after(kPulse);
      }) {
  pulse_.after(kPulse);
}

Task<void> Gateway::handle(Exchange& exchange) {
  const RequestHead& head = exchange.request();
  // A reload in the middle of this request does not concern it.
  const Generation& generation = shared_.generation();
  if (!generation.config.cors_origins.empty()) allow_origin(exchange, generation.config.cors_origins);
  if (!co_await within_address_rate(shared_, wakeups_, exchange)) co_return;
  if (loops(shared_.self, head.headers)) {
    shared_.metrics.no_route().count("loop", exchange);
    shared_.log.seldom(LogLevel::error, "loop", {}, {{"next", "check the upstream setting"}});
    co_await exchange.send_problem(508,
                                   "this request has passed through this gateway before: check the upstream setting");
    co_return;
  }
  const NormalPath path(head.path());
  const bool reading = head.method == "GET" || head.method == "HEAD";
  if (reading && path.text() == kPolicyDocument && !generation.published.empty()) {
    shared_.metrics.no_route().count("well_known", exchange);
    Headers headers;
    headers.add("Content-Type", "application/json");
    headers.add("Cache-Control", "max-age=300");
    exchange.answer_is_own();
    co_await exchange.send(200, {}, headers, generation.published);
    co_return;
  }
  if (generation.has_status_urls && is_status_path(path.text())) {
    co_await answer_status(exchange);
    co_return;
  }
  const RouteMatch match = match_route(generation.config.routes, head.method, path);
  if (match.route == nullptr) {
    if (co_await refuse_stripping(exchange, shared_.metrics.no_route())) co_return;
    // A path that a route protects for other methods has that route's keys.
    const Route* const of_path = route_of_path(generation.config.routes, path.text());
    const Policy& policy = of_path != nullptr ? of_path->policy : shared_.no_policy;
    if (asks_for_websocket(head) && has_key_header(policy, head.headers)) {
      const Refusal refusal = no_websocket(kOpenWithoutKey);
      co_await send_refusal(exchange, policy, shared_.metrics.no_route(), refusal);
      co_return;
    }
    // The path says where a request goes; the methods say whether it is protected there.
    Upstream* const upstream = of_path != nullptr ? &of_path->state->upstream : shared_.upstreams.of_no_route();
    if (upstream == nullptr) {
      shared_.metrics.no_route().count("no_upstream", exchange);
      co_await exchange.send_problem(404, "this gateway has no upstream for this path");
      co_return;
    }
    shared_.metrics.no_route().count(passed_as(head), exchange);
    tell_ignored_key(head, path);
    const Sharer sharer = sharer_of(shared_, exchange);
    co_await pass_through(exchange, *upstream, sharer, generation.config.upstream_timeout, kNoMarks, nullptr);
    co_return;
  }
  const RouteMetrics& metrics = match.route->state->metrics;
  if (match.ambiguous && match.route->policy.mode == Mode::observe) {
    metrics.count("observed_refusal", exchange);
    const Sharer sharer = sharer_of(shared_, exchange);
    co_await pass_through(exchange, *match.route, sharer, kNoMarks, nullptr);
    co_return;
  }
  if (match.ambiguous) {
    const Refusal refusal{RefusalCode::path_ambiguous, path.why_ambiguous(), std::nullopt, {}};
    co_await send_refusal(exchange, match.route->policy, metrics, refusal);
    co_return;
  }
  co_await handle_routed(exchange, *match.route, metrics);
}

// Vary also without an Origin: a cache in between must not answer one origin with what another got.
void Gateway::allow_origin(Exchange& exchange, const std::vector<std::string>& allowed) {
  const std::optional<std::string_view> origin = exchange.request().headers.get("Origin");
  const bool all = allowed.front() == "*";
  if (!all) exchange.add_to_own_answer("Vary", "Origin");
  if (!origin || (!all && std::find(allowed.begin(), allowed.end(), *origin) == allowed.end())) return;
  exchange.add_to_own_answer("Access-Control-Allow-Origin", all ? std::string_view("*") : *origin);
  // Pages send cookies and read the answer only where both sides agree to; browsers refuse that for all origins alike.
  if (!all) exchange.add_to_own_answer("Access-Control-Allow-Credentials", "true");
  exchange.add_to_own_answer("Access-Control-Expose-Headers", kExposedHeaders);
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

// A proxy in front may have added fields that say who the caller is. A client must not have them removed by naming them
// in Connection.
Task<bool> Gateway::refuse_stripping(Exchange& exchange, const RouteMetrics& metrics) {
  const std::optional<std::string_view> field = stripped_by_connection(exchange.request().headers);
  if (!field) return false;
  return tell_stripping(exchange, metrics, *field);
}

Task<bool> Gateway::tell_stripping(Exchange& exchange, const RouteMetrics& metrics, std::string_view field) {
  metrics.count("malformed", exchange);
  const std::string why = fmt::format("Connection names {}, which is not a field of one connection", field);
  co_await exchange.send_problem(400, why);
  co_return true;
}

Task<void> Gateway::handle_routed(Exchange& exchange, const Route& route, const RouteMetrics& metrics) {
  const Policy& policy = route.policy;
  const RequestHead& head = exchange.request();
  const RequestCaller caller(shared_, verified_tokens_, route, exchange);
  const RequestView view{head.method, head.target, head.headers, caller.view()};
  const bool observing = policy.mode == Mode::observe;
  Sharer sharer = sharer_of(shared_, exchange);

  Limited limited;
  if (!observing) co_await limit(exchange, route, view.caller, limited);
  if (limited.refusal && !policy.rate_exempts_replays) {
    co_await send_refusal(exchange, policy, metrics, *limited.refusal);
    co_return;
  }

  // Where keys are made of the fingerprint, admit() finds one below.
  const bool websocket = asks_for_websocket(head);
  const bool required = policy.key == MissingKey::required;
  if (websocket && !observing && (required || has_key_header(policy, head.headers))) {
    const Refusal refusal =
        no_websocket(required ? "This path takes no request without a key, and so no WebSocket." : kOpenWithoutKey);
    co_await send_refusal(exchange, policy, metrics, refusal);
    co_return;
  }
  Screened screened = screen(policy, view, shared_.account_seed);
  if (!std::holds_alternative<Refusal>(screened) && co_await refuse_stripping(exchange, metrics)) co_return;
  if (std::holds_alternative<PassThrough>(screened)) {
    if (limited.refusal) {
      co_await send_refusal(exchange, policy, metrics, *limited.refusal);
      co_return;
    }
    metrics.count(passed_as(head), exchange);
    co_await pass_through(exchange, route, sharer, kNoMarks, nullptr);
    co_return;
  }
  if (auto* refusal = std::get_if<Refusal>(&screened)) {
    if (observing) {
      metrics.count("observed_refusal", exchange);
      co_await pass_through(exchange, route, sharer, kNoMarks, nullptr);
    } else {
      co_await send_refusal(exchange, policy, metrics, *refusal);
    }
    co_return;
  }

  ReadBody& screening = std::get<ReadBody>(screened);
  if (screening.account) sharer.is_account(recent_accounts_, *screening.account);
  BufferedBytes buffered(shared_, sharer);
  std::string body;
  const BodyRead read = co_await exchange.read_body(body, policy.max_request_body,
                                                    [&](std::size_t more) { return buffered.try_hold(more); });
  if ((read == BodyRead::too_large || read == BodyRead::refused) && observing) {
    metrics.count("observed_refusal", exchange);
    co_await pass_through(exchange, route, sharer, kNoMarks, &body);
    co_return;
  }
  if (read == BodyRead::refused) {
    const Refusal refusal = refusal_of(buffered.why(), Resource::buffered_bytes, {});
    co_await send_refusal(exchange, policy, metrics, refusal);
    co_return;
  }
  if (read == BodyRead::too_large) {
    shared_.log.seldom(LogLevel::info, "request_too_large", route.name,
                       {{"route", route.name},
                        {"limit", policy.max_request_body},
                        {"next", "raise max_request_body of the route if such bodies are meant to come"}},
                       kHintEvery);
    const Refusal refusal{
        RefusalCode::request_too_large, fmt::format("At most {} bytes are allowed.", policy.max_request_body), {}, {}};
    co_await send_refusal(exchange, policy, metrics, refusal);
    co_return;
  }
  if (read == BodyRead::broken) {
    metrics.count(exchange.client_gone() ? "client_gone" : "malformed", exchange);
    if (exchange.fault()) co_await exchange.send_problem(exchange.fault().status, exchange.fault().detail);
    co_return;
  }

  Admission admission = admit(policy, view, body, shared_.hash, std::move(screening.principal));
  if (std::holds_alternative<PassThrough>(admission)) {
    if (limited.refusal) {
      co_await send_refusal(exchange, policy, metrics, *limited.refusal);
      co_return;
    }
    metrics.count(passed_as(head), exchange);
    co_await pass_through(exchange, route, sharer, kNoMarks, &body);
    co_return;
  }
  if (auto* refusal = std::get_if<Refusal>(&admission)) {
    if (observing) {
      metrics.count("observed_refusal", exchange);
      co_await pass_through(exchange, route, sharer, kNoMarks, &body);
    } else {
      co_await send_refusal(exchange, policy, metrics, *refusal);
    }
    co_return;
  }

  if (websocket && observing) {
    metrics.count("observed_refusal");
    co_await pass_through(exchange, route, sharer, kNoMarks, &body);
    co_return;
  }
  if (websocket) {
    const bool of_fingerprint = std::get<Admitted>(admission).key.empty();
    const Refusal refusal =
        no_websocket(of_fingerprint ? "This path makes a key of every request's fingerprint, and so takes no WebSocket."
                                    : kOpenWithoutKey);
    co_await send_refusal(exchange, policy, metrics, refusal);
    co_return;
  }

  Admitted& admitted = std::get<Admitted>(admission);
  std::string echoed = key_to_echo(policy, head, admitted);
  KeyedRequest request{head,
                       {exchange.peer(), exchange.secure()},
                       &exchange,
                       route,
                       metrics,
                       sharer,
                       buffered,
                       std::move(admitted),
                       std::move(body),
                       std::move(echoed),
                       {},
                       std::move(limited)};
  request.answer_later = policy.respond_async && prefers_async(head.headers);
  if (policy.errors == ErrorFormat::stripe) request.request_id = make_request_id();
  if (observing) {
    co_await observe(request);
  } else {
    co_await handle_keyed(request);
  }
}

Task<Result<ClaimAnswer>> Gateway::claim(const KeyedRequest& request, MonotonicTime start) {
  const Policy& policy = request.policy();
  const RequestHead& head = request.head;
  ClaimRequest wanted;
  wanted.id = request.admitted.id;
  wanted.fingerprint = request.admitted.fingerprint;
  wanted.lease = policy.lease;
  wanted.retention = request.admitted.retention;
  wanted.abandoned = abandoned_rule(policy);
  wanted.route = request.route.name;
  // What the store keeps for people is printable, so that no client can break a listing.
  wanted.key = request.admitted.key;
  wanted.method = head.method;
  wanted.target = printable_target(head.path().substr(0, kShownTargetMax));
  shared_.live_calls.renew_after_a_pause(shared_.store);
  Result<ClaimAnswer> answer = co_await await_store<ClaimAnswer>(
      wakeups_, [&](auto done) { shared_.store.claim(std::move(wanted), std::move(done)); });
  shared_.metrics.claim_seconds.Observe(seconds_since(start));
  co_return answer;
}

// Claim, decide, act. Waiting and lost races lead back to the claim; everything else ends in an answer.
Task<void> Gateway::handle_keyed(KeyedRequest& request) {
  if (AccessNote* const note = request.client->note()) note->key = short_hash(request.admitted.id);
  const Policy& policy = request.policy();
  const MonotonicTime start = std::chrono::steady_clock::now();
  const MonotonicTime wait_until = start + policy.wait;
  std::unique_ptr<Waiters::Ticket> ticket;
  Holding waiting(shared_.shares, Resource::waiters, request.sharer.address(), request.sharer.account());
  int turns = 0;
  bool known = false; // the store has said something about this key
  for (MonotonicTime before_claim = start;; before_claim = std::chrono::steady_clock::now()) {
    if (shared_.draining.load() && ticket) {
      co_await send_refusal(request, RefusalCode::draining, std::chrono::seconds(1), Fate::still_running);
      co_return;
    }
    // Under too much of everything, what is finished is still answered and what runs may finish.
    const std::optional<Refusal> nothing_new = refuse_new_work(request, before_claim);
    Task<Result<ClaimAnswer>> asked = nothing_new ? look(request) : claim(request, before_claim);
    const Result<ClaimAnswer> answer = co_await std::move(asked);
    if (!answer && nothing_new) {
      co_await send_refusal(request, *nothing_new);
      co_return;
    }
    if (!answer) {
      co_await answer_store_fault(request, answer.fault(), known ? Bypass::no : Bypass::if_the_route_says_so);
      co_return;
    }
    known = true;
    count_retry(request, *answer, before_claim);
    const Decision decision = decide(policy, request.admitted.fingerprint, *answer);
    const bool begins = decision.verdict == Verdict::execute || decision.verdict == Verdict::probe;
    if (!begins) request.work.give_up();
    if (nothing_new && needs_new_work(decision, *answer, request.limited)) {
      Refusal refusal = *nothing_new;
      const Found& found = std::get<Found>(*answer);
      const bool over =
          found.record->lease_over(found.now) || shared_.owner_is_gone(request.admitted.id, *found.record);
      refusal.fate = over ? Fate::maybe_executed : Fate::still_running;
      co_await send_refusal(request, refusal);
      co_return;
    }
    if (request.answer_later && (decision.verdict == Verdict::replay || decision.verdict == Verdict::in_progress)) {
      co_await send_accepted(request, decision.age);
      co_return;
    }
    switch (decision.verdict) {
      case Verdict::execute:
      case Verdict::probe: {
        ticket.reset();
        waiting.let_go();
        count_growth(request.sharer, claim_bytes(request));
        request.count(to_string(decision.verdict));
        if (request.answer_later) {
          detach(request, std::get<Claimed>(*answer), before_claim, decision.verdict);
          co_await send_accepted(request, Millis(0));
          co_return;
        }
        const Attempt attempt = co_await execute(request, std::get<Claimed>(*answer), before_claim, decision.verdict);
        if (attempt == Attempt::lost) co_await answer_from_record(request);
        co_return;
      }
      case Verdict::replay:
        if (policy.rate_exempts_replays && request.limited.bucket) {
          shared_.rates.give_back(*request.limited.bucket, request.limited.rate);
        }
        co_await send_replay(request, *std::get<Found>(*answer).record->response);
        co_return;
      case Verdict::mismatch:
        co_await send_refusal(request, RefusalCode::mismatch);
        co_return;
      case Verdict::indeterminate:
        co_await send_refusal(request, RefusalCode::indeterminate);
        co_return;
      case Verdict::answer_not_kept:
        co_await send_refusal(request, RefusalCode::answer_not_kept);
        co_return;
      case Verdict::hold: {
        // Abandoned, and this policy does not execute twice. Whoever comes first says so in the record; if somebody
        // else settled it in between, their word counts.
        const Record& abandoned = *std::get<Found>(*answer).record;
        const Ownership found{request.admitted.id, abandoned.fence, abandoned.claimed_by};
        const Result<FenceAnswer> held = co_await await_store<FenceAnswer>(
            wakeups_, [&](auto done) { shared_.store.hold(found, Holder::finder, std::move(done)); });
        if (!held) {
          co_await answer_store_fault(request, held.fault(), Bypass::no);
          co_return;
        }
        request.count("hold");
        if (*held == FenceAnswer::done) {
          shared_.log.warning(
              "held",
              {{"key", short_hash(request.admitted.id)}, {"route", request.route.name}, {"reason", "abandoned"}});
          shared_.waiters.notify(request.admitted.id);
        }
        break;
      }
      case Verdict::in_progress: {
        const MonotonicTime now = std::chrono::steady_clock::now();
        const bool may_wait = policy.wait.count() > 0 && now < wait_until && !shared_.draining.load();
        if (may_wait && !ticket && (waiting.held() > 0 || waiting.try_add(1) == Grant::given)) {
          ticket = shared_.waiters.join(request.admitted.id, timers_, policy.max_waiters);
        }
        if (!may_wait || !ticket) {
          co_await refuse_in_progress(request, decision, *std::get<Found>(*answer).record);
          co_return;
        }
        if (!co_await still_in_progress(request)) continue;
        // The lease may run out before the wait does: then the next claim takes over or holds.
        co_await ticket->wait_until(std::min(wait_until, now + decision.lease_left + kTimerTick));
        continue;
      }
    }
    if (++turns == kTurnsMax) {
      co_await send_refusal(request, RefusalCode::in_progress, std::chrono::seconds(1));
      co_return;
    }
  }
}

// The record as it is, without claiming anything; a fault where there is none.
Task<Result<ClaimAnswer>> Gateway::look(const KeyedRequest& request) {
  using FoundMaybe = std::optional<Found>;
  Result<FoundMaybe> found = co_await await_store<FoundMaybe>(
      wakeups_, [&](auto done) { shared_.store.find(request.admitted.id, Interest::none, std::move(done)); });
  if (!found) {
    shared_.metrics.store_faults.Increment();
    co_return std::move(found).fault();
  }
  if (!found->has_value()) co_return unavailable("nothing is known of this key");
  trust_owner_here(request.admitted.id, **found, request.policy().lease);
  co_return ClaimAnswer(**std::move(found));
}

void Gateway::trust_owner_here(const RecordId& id, Found& found, Millis lease) const {
  if (!found.record->abandoned(found.now) || shared_.live_calls.fence_of(id) != found.record->fence) return;
  Record renewed = *found.record;
  renewed.lease_until = found.now + lease;
  found = Found{std::move(renewed), found.now};
}

void Gateway::count_retry(KeyedRequest& request, const ClaimAnswer& answer, MonotonicTime now) {
  const auto* found = std::get_if<Found>(&answer);
  if (found == nullptr || found->record->fingerprint != request.admitted.fingerprint) return;
  if (std::exchange(request.retry_counted, true)) return;
  request.metrics.retries.Increment();
  shared_.storms.retried(request.admitted.id, request.route.state->number, now);
}

// Looks again, now that the completion would wake us, also one by another gateway.
Task<bool> Gateway::still_in_progress(const KeyedRequest& request) {
  using FoundMaybe = std::optional<Found>;
  const Result<FoundMaybe> found = co_await await_store<FoundMaybe>(
      wakeups_, [&](auto done) { shared_.store.find(request.admitted.id, Interest::settling, std::move(done)); });
  if (!found || !found->has_value()) co_return false; // the next claim says what it is
  const Found& now = **found;
  co_return now.record->state == RecordState::in_progress && !now.record->lease_over(now.now);
}

Task<void> Gateway::answer_store_fault(KeyedRequest& request, const Fault& fault, Bypass bypass) {
  shared_.metrics.store_faults.Increment();
  shared_.log.seldom(
      LogLevel::error, "store_fault", request.route.name,
      {{"key", short_hash(request.admitted.id)}, {"route", request.route.name}, {"reason", fault.message}});
  request.work.give_up();
  if (bypass == Bypass::if_the_route_says_so && request.policy().on_store_error == OnStoreError::bypass) {
    request.count("bypass");
    Headers marks;
    marks.add("Oncekey-Bypassed", "true");
    co_await pass_through(*request.client, request.route, request.sharer, marks, &request.body);
    co_return;
  }
  // Whoever was known before may have executed by now.
  const Fate fate = bypass == Bypass::no ? Fate::maybe_executed : Fate::as_the_code_says;
  co_await send_refusal(request, RefusalCode::store_unavailable, std::chrono::seconds(1), fate);
}

// After a lost lease: the record decides, and nothing is executed on behalf of this request any more.
Task<void> Gateway::answer_from_record(KeyedRequest& request) {
  using FoundMaybe = std::optional<Found>;
  const Result<FoundMaybe> found = co_await await_store<FoundMaybe>(
      wakeups_, [&](auto done) { shared_.store.find(request.admitted.id, Interest::none, std::move(done)); });
  if (!found || !found->has_value()) {
    co_await send_refusal(request, RefusalCode::record_not_written, std::chrono::seconds(1));
    co_return;
  }
  const Decision decision = decide(request.policy(), request.admitted.fingerprint, ClaimAnswer(**found));
  switch (decision.verdict) {
    case Verdict::replay:
      co_await send_replay(request, *(*found)->record->response);
      co_return;
    case Verdict::answer_not_kept:
      co_await send_refusal(request, RefusalCode::answer_not_kept);
      co_return;
    case Verdict::mismatch:
    case Verdict::indeterminate:
    case Verdict::hold:
      co_await send_refusal(request, RefusalCode::indeterminate);
      co_return;
    case Verdict::in_progress:
    case Verdict::execute:
    case Verdict::probe:
      co_await refuse_in_progress(request, decision, *(*found)->record);
      co_return;
  }
}

Task<void> Gateway::refuse_in_progress(KeyedRequest& request, const Decision& decision, const Record& record) {
  const bool gone = decision.lease_left.count() > 0 && shared_.owner_is_gone(request.admitted.id, record);
  const std::chrono::seconds after = gone ? retry_after_lease(decision.lease_left)
                                          : retry_after(decision.age, request.metrics.usual_duration().estimate());
  return send_refusal(request, RefusalCode::in_progress, after, gone ? Fate::owner_gone : Fate::as_the_code_says);
}

// A client that does not read keeps its answer in memory for as long as timeouts.write lets it: the body counts until
// it has been taken, and whoever comes when there is no room for it is sent away to come again.
Task<void> Gateway::send_replay(KeyedRequest& request, const StoredResponse& response) {
  if (request.client == nullptr) co_return;
  if (!co_await may_see_answer(*request.client, request.route, request.metrics, request.admitted.key)) co_return;
  if (!request.buffered.try_hold_answer(shared_, response.body.size())) {
    const Refusal refusal = refusal_of(request.buffered.why(), Resource::buffered_bytes, request.admitted.key);
    co_await send_refusal(request, refusal);
    co_return;
  }
  request.count("replay");
  const Reply reply = replay_head(request.policy(), response, request.context());
  co_await send_answer(*request.client, request.policy(), request.buffered, reply, response.body);
}

Task<void> Gateway::send_refusal(KeyedRequest& request, RefusalCode code,
                                 std::optional<std::chrono::seconds> retry_after, Fate fate) {
  const Refusal refusal{code, {}, retry_after, request.admitted.key, {}, fate};
  co_await send_refusal(request, refusal);
}

Task<void> Gateway::send_refusal(KeyedRequest& request, const Refusal& refusal) {
  request.count(to_string(refusal.code));
  if (shared_.log.enabled(LogLevel::debug)) {
    shared_.log.write(LogLevel::debug, "refused",
                      {{"key", short_hash(request.admitted.id)}, {"code", to_string(refusal.code)}});
  }
  const Reply reply = refuse(request.policy(), refusal, request.context());
  if (request.client != nullptr) request.client->answer_is_own();
  co_await send_reply(request, reply);
}

Task<void> Gateway::send_refusal(Exchange& exchange, const Policy& policy, const RouteMetrics& metrics,
                                 const Refusal& refusal) {
  metrics.count(to_string(refusal.code), exchange);
  if (refusal.code == RefusalCode::principal_missing) {
    shared_.log.seldom(LogLevel::warning, "principal_missing", metrics.route(),
                       {{"route", metrics.route()},
                        {"next",
                         "requests with a key are refused: set scope to where this API finds the account, as in "
                         "scope = \"cookie:session\", or \"global\" if there are no accounts"}},
                       kHintEvery);
  }
  const std::string request_id = policy.errors == ErrorFormat::stripe ? make_request_id() : std::string();
  const Reply reply = refuse(policy, refusal, ReplyContext{refusal.key, request_id, {}});
  exchange.answer_is_own();
  co_await send_reply(exchange, reply);
}

Task<void> Gateway::send_reply(KeyedRequest& request, const Reply& reply) {
  if (request.client == nullptr) return std::monostate{};
  return send_reply(*request.client, reply);
}

Task<void> Gateway::send_answer(Exchange& exchange, const Policy& policy, BufferedBytes& buffered, const Reply& head,
                                std::string_view body) {
  if (policy.compress) return send_compressible(exchange, buffered, head, body);
  return exchange.send(head.status, head.reason, head.headers, body);
}

Task<void> Gateway::send_compressible(Exchange& exchange, BufferedBytes& buffered, const Reply& head,
                                      std::string_view body) {
  const RequestHead& request = exchange.request();
  const bool fits = request.method != "HEAD" && may_compress(head.status, head.headers, body.size());
  std::string compressed;
  if (fits && accepts_gzip(request.headers)) {
    buffered.hold(body.size()); // at most as long as what it is made of, and kept until the client has taken it
    compressed = co_await gzip(timers_, body);
  }
  Headers headers = compressed.empty() ? head.headers : headers_of_compressed(head.headers);
  add_vary(headers);
  if (!compressed.empty()) body = compressed;
  co_await exchange.send(head.status, head.reason, headers, body);
}

Task<void> Gateway::send_reply(Exchange& exchange, const Reply& reply) {
  return exchange.send(reply.status, reply.reason, reply.headers, reply.body);
}

} // namespace oncekey
