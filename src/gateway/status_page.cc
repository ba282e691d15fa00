#include "core/decide.h"
#include "core/path.h"
#include "core/scope.h"
#include "core/status_url.h"
#include "gateway/keyed_flow.h"
#include "gateway/routes.h"

namespace oncekey {
namespace {

// The record that the URL names, if it belongs to the caller's account; `id` is then its id.
Task<Result<std::optional<Found>>> find_named(GatewayThread& thread, const Exchange& exchange, const Route& route,
                                              const OperationName& named, const Principal& principal, RecordId& id) {
  GatewayShared& shared = thread.shared;
  const Headers& headers = exchange.request().headers;
  const RequestView operation{named.method, named.path, headers};
  id = record_id(route.policy, principal, operation, KeyKind::client, named.key, shared.hash);
  Result<std::optional<Found>> answer = co_await thread.find(id, Interest::none);
  if (!answer || !*answer) co_return answer;
  Found& found = **answer;
  trust_owner_here(shared, id, found, route.policy.lease);
  // A record of another host or route is not what the URL names, and may be under other rules.
  const bool named_by_url =
      found.record->route == route.name && same_host(route.policy, headers, found.record->fingerprint, shared.hash);
  if (!named_by_url) co_return std::optional<Found>{};
  if (const Status plain = readable(*found.record); !plain) co_return plain.fault();
  co_return answer;
}

// By the record's own fingerprint: a request for a status has no body to compare.
Task<void> answer_from(GatewayShared& shared, Exchange& exchange, const Route& route, Replier& replier,
                       const RecordId& id, const Found& found) {
  const Record& record = *found.record;
  const Decision decision = decide(route.policy, record.fingerprint, ClaimAnswer(found));
  const Sharer sharer = sharer_of(shared, exchange);
  BufferedBytes buffered(shared, sharer);
  auto settled = replier.answer_settled(route, buffered, decision.verdict, record);
  const bool over = record.lease_over(found.now) || shared.owner_is_gone(id, record);
  if (settled) {
    co_await *std::move(settled);
  } else if (decision.verdict == Verdict::in_progress && !over) {
    const NormalPath path(exchange.request().path());
    co_await replier.send_pending(path.text(), decision.age);
  } else {
    // Abandoned. The retry of the request itself decides what becomes of it; it has the body, and this page has not.
    co_await replier.refuse(RefusalCode::abandoned);
  }
}

Task<void> answer_for(GatewayThread& thread, Exchange& exchange, const Route& route, const OperationName& named) {
  GatewayShared& shared = thread.shared;
  Replier replier(thread, route.policy, route.state->metrics, &exchange);
  const RequestCaller caller(shared, thread.verified_tokens, route, exchange);
  const Requester requester(route.policy, exchange.request().headers, caller.view());
  Limited limited;
  co_await ask_limits(thread, exchange, route, requester, limited);
  if (limited.refusal) co_return co_await replier.refuse(*limited.refusal);
  // The asker's own account: under the URL of another there is nothing to find.
  const auto* const refusal = std::get_if<Refusal>(&requester.principal());
  if (refusal != nullptr) {
    const bool anonymous = refusal->code == RefusalCode::principal_missing;
    if (anonymous) co_await replier.refuse(RefusalCode::operation_unknown);
    if (!anonymous) co_await replier.refuse(*refusal);
    co_return;
  }
  RecordId id;
  const Result<std::optional<Found>> found =
      co_await find_named(thread, exchange, route, named, std::get<Principal>(requester.principal()), id);
  if (found && !*found) co_return co_await replier.refuse(RefusalCode::operation_unknown);
  replier.key_is(id, named.key, named.key);
  if (!found) {
    shared.metrics.store_faults.Increment();
    co_return co_await replier.refuse(RefusalCode::store_unavailable, std::chrono::seconds(1));
  }
  co_await answer_from(shared, exchange, route, replier, id, **found);
}

} // namespace

Task<void> answer_status(GatewayThread& thread, Exchange& exchange) {
  GatewayShared& shared = thread.shared;
  const RequestHead& head = exchange.request();
  const RouteMetrics& no_route = shared.metrics.no_route();
  if (head.method != "GET" && head.method != "HEAD") {
    no_route.count("malformed", exchange);
    exchange.add_to_answer("Allow", "GET, HEAD");
    co_return co_await exchange.send_problem(405, "the status of an operation can be read: use GET");
  }
  const NormalPath path(head.path());
  const std::optional<OperationName> named = parse_status_url(path.text());
  const Route* const route = named ? find_route(shared.config().routes, named->method, named->path) : nullptr;
  if (route == nullptr || !route->policy.respond_async) {
    no_route.count("operation_unknown", exchange);
    co_return co_await exchange.send_problem(404, "there is no operation under this URL");
  }
  co_await answer_for(thread, exchange, *route, *named);
}

} // namespace oncekey
