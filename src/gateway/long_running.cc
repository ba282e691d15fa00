// Long-running work: the client is told where to fetch the answer and goes away; the operation goes on without it.
#include "core/fingerprint.h"
#include "core/scope.h"
#include "core/status_url.h"
#include "gateway/gateway.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

namespace oncekey {
namespace {

Reply pending_reply(std::string_view url, std::string_view echoed_key, std::chrono::seconds ask_again_after) {
  Reply reply;
  reply.status = 202;
  reply.reason = "Accepted";
  reply.headers.add("Content-Type", "application/json");
  reply.headers.add("Cache-Control", "no-store");
  reply.headers.add("Retry-After", fmt::format_int(ask_again_after.count()).c_str());
  if (!echoed_key.empty()) reply.headers.add("Idempotency-Key", echoed_key);
  // base64url and a fixed path: nothing in it needs escaping.
  reply.body = fmt::format("{{\"status\":\"in_progress\",\"location\":\"{}\"}}\n", url);
  return reply;
}

} // namespace

// A request with all it refers to, which outlives the connection it came on.
struct Gateway::Detached {
  Detached(GatewayShared& shared, KeyedRequest& from)
      : counted(shared.detached),
        head(from.head),
        peer(from.from.peer),
        sharer(from.sharer, shared.shares),
        buffered(shared, sharer),
        // Key and id stay behind too, for the 202.
        request{head,
                {peer, from.from.secure},
                nullptr,
                from.route,
                from.metrics,
                sharer,
                buffered,
                from.admitted,
                std::move(from.body),
                from.echoed_key,
                from.request_id,
                std::move(from.limited),
                std::move(from.work),
                true} {
    buffered.hold(request.body.capacity());
  }

  const Counted counted; // first, so that it ends last: a drain waits for it
  const RequestHead head;
  const std::string peer;
  const Sharer sharer;
  BufferedBytes buffered;
  KeyedRequest request;
};

// The claim is durable, so the promise can be kept: by this operation, or after a crash by whoever retries.
Task<void> Gateway::send_accepted(KeyedRequest& request, Millis age) {
  request.count("accepted");
  // The record goes by the normal path, and so does its URL.
  const NormalPath path(request.head.path());
  const std::string url = status_url(request.head.method, path.text_with_slashes(), request.admitted.key);
  const std::chrono::seconds after = retry_after(age, request.metrics.usual_duration().estimate());
  Reply reply = pending_reply(url, request.echoed_key, after);
  reply.headers.add("Location", url);
  reply.headers.add("Preference-Applied", "respond-async");
  if (!request.request_id.empty()) reply.headers.add("Request-Id", request.request_id);
  request.client->answer_is_own();
  co_await send_reply(*request.client, reply);
}

void Gateway::detach(KeyedRequest& request, const Claimed& claimed, MonotonicTime before_claim, Verdict verdict) {
  auto detached = std::make_unique<Detached>(shared_, request);
  spawn(run_detached(std::move(detached), claimed, before_claim, verdict));
}

Task<void> Gateway::run_detached(std::unique_ptr<Detached> detached, Claimed claimed, MonotonicTime before_claim,
                                 Verdict verdict) {
  KeyedRequest& request = detached->request;
  try {
    // If the lease is lost, somebody else has the answer: nobody here waits for it.
    (void)co_await execute(request, claimed, before_claim, verdict);
  } catch (const std::exception& error) {
    // The claim is left to its lease, as after a crash.
    shared_.log.error("request_failed", {{"key", short_hash(request.admitted.id)}, {"reason", error.what()}});
  }
}

Task<void> Gateway::answer_status(Exchange& exchange) {
  const RequestHead& head = exchange.request();
  if (head.method != "GET" && head.method != "HEAD") {
    shared_.metrics.no_route().count("malformed", exchange);
    exchange.add_to_answer("Allow", "GET, HEAD");
    co_await exchange.send_problem(405, "the status of an operation can be read: use GET");
    co_return;
  }
  const std::vector<Route>& routes = shared_.config().routes;
  const NormalPath path(head.path());
  const std::optional<OperationName> named = parse_status_url(path.text());
  const Route* route = named ? find_route(routes, named->method, named->path) : nullptr;
  if (route == nullptr || !route->policy.respond_async) {
    shared_.metrics.no_route().count("operation_unknown", exchange);
    co_await exchange.send_problem(404, "there is no operation under this URL");
    co_return;
  }
  const Policy& policy = route->policy;
  const RouteMetrics& metrics = route->state->metrics;
  Limited limited;
  const RequestCaller caller(shared_, verified_tokens_, *route, exchange);
  const Caller asker = caller.view();
  co_await limit(exchange, *route, asker, limited);
  if (limited.refusal) {
    co_await send_refusal(exchange, policy, metrics, *limited.refusal);
    co_return;
  }

  // The asker's own account: under the URL of another there is nothing to find.
  const auto principal = find_principal(policy, head.headers, asker);
  const auto* account = std::get_if<Principal>(&principal);
  if (const auto* refusal = std::get_if<Refusal>(&principal);
      refusal != nullptr && refusal->code != RefusalCode::principal_missing) {
    co_await send_refusal(exchange, policy, metrics, *refusal);
    co_return;
  }
  std::optional<Found> found;
  RecordId id;
  if (account != nullptr) {
    const RequestView operation{named->method, named->path, head.headers};
    id = record_id(policy, *account, operation, KeyKind::client, named->key, shared_.hash);
    using FoundMaybe = std::optional<Found>;
    Result<FoundMaybe> answer = co_await await_store<FoundMaybe>(
        wakeups_, [&](auto done) { shared_.store.find(id, Interest::none, std::move(done)); });
    if (!answer) {
      shared_.metrics.store_faults.Increment();
      const Refusal refusal{RefusalCode::store_unavailable, {}, std::chrono::seconds(1), named->key};
      co_await send_refusal(exchange, policy, metrics, refusal);
      co_return;
    }
    found = *std::move(answer);
    if (found) trust_owner_here(id, *found, policy.lease);
    // A record of another host or route is not what the URL names, and may be under other rules.
    const bool named_by_url = found && found->record->route == route->name &&
                              same_host(policy, head.headers, found->record->fingerprint, shared_.hash);
    if (!named_by_url) found.reset();
  }
  if (!found) {
    const Refusal refusal{RefusalCode::operation_unknown, {}, {}, {}};
    co_await send_refusal(exchange, policy, metrics, refusal);
    co_return;
  }

  // The record's own fingerprint: whoever knows account and key has no body to compare.
  const Record& record = *found->record;
  const ClaimAnswer as_found(*found);
  const Decision decision = decide(policy, record.fingerprint, as_found);
  switch (decision.verdict) {
    case Verdict::replay: {
      if (!co_await may_see_answer(exchange, *route, metrics, named->key)) co_return;
      const Sharer sharer = sharer_of(shared_, exchange);
      BufferedBytes buffered(shared_, sharer);
      if (!buffered.try_hold_answer(shared_, record.response->body.size())) {
        const Refusal refusal = refusal_of(buffered.why(), Resource::buffered_bytes, named->key);
        co_await send_refusal(exchange, policy, metrics, refusal);
        co_return;
      }
      metrics.count("replay", exchange);
      const std::string request_id = policy.errors == ErrorFormat::stripe ? make_request_id() : std::string();
      const std::string_view origin = head.headers.get("Origin").value_or(std::string_view{});
      const Reply reply = replay_head(policy, *record.response, ReplyContext{named->key, request_id, origin});
      co_await send_answer(exchange, policy, buffered, reply, record.response->body);
      co_return;
    }
    case Verdict::in_progress: {
      if (record.lease_over(found->now) || shared_.owner_is_gone(id, record)) break;
      metrics.count("status_pending", exchange);
      const std::chrono::seconds after = retry_after(decision.age, metrics.usual_duration().estimate());
      const Reply reply = pending_reply(path.text(), named->key, after);
      exchange.answer_is_own();
      co_await send_reply(exchange, reply);
      co_return;
    }
    case Verdict::hold:
    case Verdict::execute:
    case Verdict::probe:
      break;
    case Verdict::mismatch:
    case Verdict::indeterminate: {
      const Refusal refusal{RefusalCode::indeterminate, {}, {}, named->key};
      co_await send_refusal(exchange, policy, metrics, refusal);
      co_return;
    }
    case Verdict::answer_not_kept: {
      const Refusal refusal{RefusalCode::answer_not_kept, {}, {}, named->key};
      co_await send_refusal(exchange, policy, metrics, refusal);
      co_return;
    }
  }
  // Abandoned. The retry of the request itself decides what becomes of it; it has the body, we have not.
  const Refusal refusal{RefusalCode::abandoned, {}, {}, named->key};
  co_await send_refusal(exchange, policy, metrics, refusal);
}

} // namespace oncekey
