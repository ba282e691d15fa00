#include "admin/admin.h"

#include "admin/audit_lines.h"
#include "admin/record_json.h"
#include "base/enum_name.h"
#include "base/utf8.h"
#include "core/decide.h"

#include <algorithm>

namespace oncekey {
namespace {

namespace json = boost::json;

constexpr std::uint64_t kActionBodyMax = 16u << 20;
constexpr std::size_t kStormsMax = 100;
// Shorter prefixes often match several ids.
constexpr std::size_t kIdPrefixMin = 8;
constexpr std::chrono::seconds kWrongTokensSaidEvery{1};

// The response an operator gives for `complete`.
Result<StoredResponse> response_of(const json::object& object) {
  StoredResponse response;
  const json::value* status = object.if_contains("status");
  if (status == nullptr || !status->is_int64() || status->get_int64() < 200 || status->get_int64() > 599) {
    return invalid("status must be a whole number from 200 to 599: the status the client is to get");
  }
  response.status = static_cast<int>(status->get_int64());
  const std::string_view content_type = text_member(object, "content_type");
  if (content_type.find_first_of("\r\n") != std::string_view::npos) return invalid("content_type holds a line break");
  response.headers.add("Content-Type", content_type.empty() ? "application/json" : content_type);
  response.body = text_member(object, "body");
  const bool bodiless = status_forbids_body(response.status) || response.status == kResetContent;
  if (bodiless && !response.body.empty()) return invalid("an answer with this status has no body");
  return response;
}

} // namespace

Admin::Admin(GatewayShared& shared, Loop& timers)
    : shared_(shared),
      loop_(timers),
      on_loopback_(is_loopback(shared.config().admin)),
      say_again_(timers, [this] { log_wrong_tokens(); }) {}

Task<void> Admin::handle(Exchange& exchange) {
  const Answer answered = co_await answer(exchange);
  if (exchange.client_gone()) co_return;
  Headers headers;
  headers.add("Content-Type", answered.content_type);
  headers.add("Cache-Control", "no-store");
  headers.add("X-Content-Type-Options", "nosniff");
  co_await exchange.send(answered.status, {}, headers, answered.body);
}

Task<Admin::Answer> Admin::answer(Exchange& exchange) {
  const RequestHead& head = exchange.request();
  const std::string_view path = head.path();
  const bool reading = head.method == "GET" || head.method == "HEAD";
  if (reading && path == "/livez") {
    co_return Answer{200, R"({"status":"alive","listener":"oncekey-admin"})"};
  }
  const Credential credential = credential_of(head.headers, shared_.config().admin_token);
  if (reading && path == "/readyz" && credential == Credential::none) co_return ready(Detail::word);
  if (auto refused = co_await stop_strangers(exchange, credential)) co_return *std::move(refused);
  if (reading && path == "/readyz") co_return ready(Detail::all);
  if (reading && path == "/metrics") co_return metrics(head.headers);
  if (reading && path == "/api/keys") co_return co_await list_keys(query_of(head.target));
  if (reading && path == "/api/jobs") co_return co_await list_jobs(query_of(head.target));
  if (reading && path == "/api/storms") co_return storms();
  if (reading && path == "/api/audit") {
    const Result<json::object> page = audit_page(shared_, query_of(head.target));
    co_return page ? json_answer(*page)
                   : refused(page.fault().kind == FaultKind::invalid ? 400 : 503, page.fault().message);
  }
  if (head.method == "POST" && path == "/api/audit/find") co_return co_await find_audit(exchange);
  for (const std::string_view place : {"/api/keys/", "/api/jobs/"}) {
    if (!path.starts_with(place)) continue;
    const bool jobs = place == "/api/jobs/";
    const std::string_view rest = path.substr(place.size());
    const std::size_t slash = rest.find('/');
    // Each awaited apart: gcc 12 destroys the task of a conditional twice.
    if (slash == std::string_view::npos && reading) {
      if (jobs) co_return co_await show_job(rest);
      co_return co_await show_key(rest);
    }
    if (!jobs && rest == "find" && head.method == "POST") co_return co_await find_keys(exchange);
    if (slash != std::string_view::npos && head.method == "POST") {
      const std::string_view id = rest.substr(0, slash);
      const std::string_view action = rest.substr(slash + 1);
      if (jobs) co_return co_await act_on_job(exchange, id, action);
      co_return co_await act(exchange, id, action);
    }
  }
  co_return refused(404,
                    "Not found. Available: /livez, /readyz, /metrics, /api/keys, /api/jobs, /api/storms, /api/audit");
}

Task<std::optional<Admin::Answer>> Admin::stop_strangers(Exchange& exchange, Credential credential) {
  const RequestHead& head = exchange.request();
  switch (credential) {
    case Credential::right:
      co_return std::nullopt;
    case Credential::doubled:
      co_return refused(400, kTwoCredentials);
    case Credential::wrong:
      note_wrong_token(exchange.peer());
      co_await wait(guesses_.wrong(exchange.peer(), std::chrono::steady_clock::now()));
      // A client that guesses tokens must not delay the end of the process, neither by its penalty nor by not reading.
      if (shared_.draining.load()) exchange.abort();
      co_return refused(401, token_wanted("admin"));
    case Credential::none:
      break;
  }
  if (on_loopback_ && !names_this_machine(head.headers)) co_return refused(403, kForeignHost);
  const bool reading = head.method == "GET" || head.method == "HEAD";
  if (on_loopback_ && reading && head.path() == "/metrics") co_return std::nullopt;
  co_return refused(401, token_wanted("admin"));
}

Task<void> Admin::wait(std::chrono::milliseconds delay) {
  // Waits in short pieces, to notice when the process is shutting down.
  const MonotonicTime due = std::chrono::steady_clock::now() + delay;
  for (MonotonicTime now = std::chrono::steady_clock::now(); now < due && !shared_.draining.load();
       now = std::chrono::steady_clock::now()) {
    co_await sleep_until(loop_, std::min<MonotonicTime>(due, now + kTimerTick));
  }
}

void Admin::note_wrong_token(std::string_view peer) {
  ++wrong_tokens_;
  wrong_from_ = peer;
  if (!said_lately_) log_wrong_tokens();
}

void Admin::log_wrong_tokens() {
  said_lately_ = wrong_tokens_ > 0;
  if (!said_lately_) return;
  shared_.log.warning("admin_token_refused", {{"count", wrong_tokens_}, {"last_peer", wrong_from_}});
  wrong_tokens_ = 0;
  say_again_.after(kWrongTokensSaidEvery);
}

Admin::Answer Admin::ready(Detail detail) const {
  const Status healthy = shared_.store.healthy();
  json::object body;
  std::string reason;
  if (gateway_ == nullptr) reason = "starting";
  if (shared_.leaving.load()) reason = "draining";
  // The fault names paths and hosts: for operators alone.
  if (!healthy) reason = detail == Detail::all ? healthy.fault().message : "store";
  if (detail == Detail::all) body["durability"] = std::string(to_string(shared_.store.durability()));
  body["status"] = reason.empty() ? "ready" : "not ready";
  if (!reason.empty()) body["reason"] = reason;
  return json_answer(body, reason.empty() ? 200 : 503);
}

Admin::Answer Admin::metrics(const Headers& asked) {
  Metrics& metrics = shared_.metrics;
  const StoreStats stats = shared_.store.stats();
  metrics.waiters.Set(static_cast<double>(shared_.waiters.waiting()));
  metrics.connections.Set(gateway_ == nullptr ? 0 : gateway_->connections());
  const auto catch_up = [](prometheus::Counter& counter, std::uint64_t value) {
    counter.Increment(std::max(0.0, static_cast<double>(value) - counter.Value()));
  };
  if (gateway_ != nullptr) {
    catch_up(metrics.refused_connections_all, gateway_->refused_connections().all_used.load());
    catch_up(metrics.refused_connections_address, gateway_->refused_connections().address_over.load());
    catch_up(metrics.tls_on_a_plain_port, gateway_->refused_connections().spoke_tls.load());
    catch_up(metrics.plain_http_on_a_tls_port, gateway_->refused_connections().spoke_plain_http.load());
  }
  for (const auto& upstream : shared_.upstreams.all()) {
    upstream->metrics.connections.Set(upstream->open.load());
    upstream->metrics.breaker_open.Set(upstream->breaker.is_open() ? 1 : 0);
  }
  metrics.buffered_bytes.Set(static_cast<double>(shared_.shares.in_use(Resource::buffered_bytes)));
  metrics.in_flight.Set(shared_.executing.load());
  metrics.detached.Set(shared_.detached.load());
  metrics.tunnels.Set(shared_.tunnels.load());
  show_storms();
  metrics.store_records.Set(static_cast<double>(stats.records_estimate));
  metrics.store_bytes.Set(static_cast<double>(stats.bytes_on_disk));
  metrics.store_bytes_max.Set(static_cast<double>(shared_.room.capacity()));
  metrics.store_room.Set(shared_.room.for_claim() ? 1 : 0);
  metrics.store_buckets.Set(static_cast<double>(stats.buckets));
  catch_up(metrics.store_syncs, stats.syncs);
  catch_up(metrics.store_writes, stats.writes);
  if (shared_.audit != nullptr) {
    const AuditLog::Counts audit = shared_.audit->counts();
    catch_up(metrics.audit_written, audit.written);
    catch_up(metrics.audit_lost, audit.lost);
    metrics.audit_behind.Set(static_cast<double>(audit.behind));
  }
  if (shared_.spans != nullptr) {
    const SpanExporter::Counts spans = shared_.spans->counts();
    catch_up(metrics.spans_sent, spans.sent);
    catch_up(metrics.spans_dropped, spans.dropped);
  }
  metrics.store_durability.Set(static_cast<double>(shared_.store.durability()));
  metrics.store_healthy.Set(shared_.store.healthy().ok() ? 1 : 0);
  if (accepts_open_metrics(asked.get("Accept").value_or(std::string_view())))
    return {200, metrics.expose_open(), std::string(kOpenMetricsType)};
  return {200, metrics.expose(), "text/plain; version=0.0.4; charset=utf-8"};
}

void Admin::show_storms() {
  struct Storm {
    std::uint64_t keys = 0;
    std::uint64_t hottest = 0;
  };
  std::vector<Storm> by_route(shared_.metrics.routes());
  for (const Storms::HotKey& hot : shared_.storms.hottest(std::chrono::steady_clock::now())) {
    Storm& storm = by_route[hot.route];
    if (hot.retries >= Storms::kStormRetries) ++storm.keys;
    storm.hottest = std::max(storm.hottest, hot.retries);
  }
  for (std::size_t i = 0; i < by_route.size(); ++i) {
    const RouteMetrics& route = shared_.metrics.route(i);
    route.stormy_keys.Set(static_cast<double>(by_route[i].keys));
    route.hottest_key_retries.Set(static_cast<double>(by_route[i].hottest));
  }
}

Admin::Answer Admin::storms() const {
  json::array keys;
  for (const Storms::HotKey& hot : shared_.storms.hottest(std::chrono::steady_clock::now())) {
    if (keys.size() == kStormsMax) break;
    keys.push_back(json::object{{"key", short_hash(hot.id)},
                                {"route", shared_.metrics.route(hot.route).route()},
                                {"retries", hot.retries},
                                {"storm", hot.retries >= Storms::kStormRetries}});
  }
  const json::object body{
      {"within_seconds", Storms::kStretch.count()}, {"waiters", shared_.waiters.waiting()}, {"keys", std::move(keys)}};
  return json_answer(body);
}

Status Admin::check_id_prefix(std::string_view id_text) {
  if (id_text.size() >= kIdPrefixMin && id_text.find_first_not_of("0123456789abcdef") == std::string_view::npos)
    return ok_status();
  return invalid(fmt::format("an id is 64 hex digits, or at least the first {} of them", kIdPrefixMin));
}

Task<Result<std::optional<Found>>> Admin::look_up(const RecordId& id) {
  co_return co_await await_store<std::optional<Found>>(
      loop_, [&](auto done) { shared_.store.find(id, Interest::none, std::move(done)); });
}

Task<Result<Found>> Admin::find(std::string_view id_text, RecordId& id) {
  if (const auto whole = record_id_from_hex(id_text)) {
    id = *whole;
  } else {
    if (const Status prefix = check_id_prefix(id_text); !prefix) co_return prefix.fault();
    ListRequest request;
    request.id_prefix = id_text;
    request.limit = 2;
    using Lines = std::vector<Listed>;
    const Result<Lines> listed =
        co_await await_store<Lines>(loop_, [&](auto done) { shared_.store.list(request, std::move(done)); });
    if (!listed) co_return listed.fault();
    const auto only = only_id(*listed, "no key has an id that begins with {} (jobs: oncekey jobs)", id_text);
    if (!only) co_return only.fault();
    id = *only;
  }
  Result<std::optional<Found>> found = co_await look_up(id);
  if (!found) co_return std::move(found).fault();
  if (!found->has_value()) co_return invalid("no such key; it may have expired or been released (jobs: oncekey jobs)");
  co_return **std::move(found);
}

Admin::Answer Admin::refused(int status, std::string_view message) {
  return json_answer({{"error", as_utf8(message)}}, status);
}

Admin::Answer Admin::refused(const Fault& fault) {
  return refused(fault.kind == FaultKind::conflict ? 409 : fault.kind == FaultKind::invalid ? 404 : 503, fault.message);
}

Admin::Answer Admin::json_answer(const json::object& body, int status) { return {status, json::serialize(body)}; }

Task<Admin::Answer> Admin::show_key(std::string_view id_text) {
  RecordId id;
  const Result<Found> found = co_await find(id_text, id);
  if (!found) co_return refused(found.fault());
  json::object body = key_json(id, *found->record, found->now);
  if (found->record->response) body["response"] = response_json(*found->record->response);
  co_return json_answer(body);
}

Task<Admin::Answer> Admin::act(Exchange& exchange, std::string_view id_text, std::string_view action_text) {
  const auto action = enum_named<OperatorAction>(action_text);
  if (!action) co_return refused(404, "the actions are release, complete and rerun");
  json::object given;
  if (auto refusal = co_await read_action(exchange, given)) co_return *std::move(refusal);
  StoredResponse response;
  if (*action == OperatorAction::complete) {
    Result<StoredResponse> answer = response_of(given);
    if (!answer) co_return refused(400, answer.fault().message);
    response = std::move(answer).value();
  }
  RecordId id;
  const Result<Found> found = co_await find(id_text, id);
  if (!found) co_return refused(found.fault());
  const Result<OperatorAnswer> done = co_await await_store<OperatorAnswer>(
      loop_, [&](auto answered) { shared_.store.operate(id, *action, std::move(response), std::move(answered)); });
  audit(exchange, id, found->record.get(), action_text, done ? enum_name(*done) : "fault",
        text_member(given, "reason"));
  if (!done) co_return refused(503, done.fault().message);
  switch (*done) {
    case OperatorAnswer::done:
      break;
    case OperatorAnswer::absent:
      co_return refused(404, "no such record; it may have expired or been released");
    case OperatorAnswer::live:
      co_return refused(409, co_await why_live(id));
    case OperatorAnswer::completed:
      co_return refused(409, "the record has its answer already; changing it would give two clients different answers");
  }
  shared_.waiters.notify(id);
  co_return Answer{200, done_json(id, action_text)};
}

Task<std::optional<Admin::Answer>> Admin::read_action(Exchange& exchange, json::object& out) {
  if (auto refusal = co_await read_json(exchange, out)) co_return std::move(refusal);
  if (!text_member(out, "reason").empty()) co_return std::nullopt;
  co_return refused(400, "say why: \"reason\" goes into the audit trail");
}

Task<std::optional<Admin::Answer>> Admin::read_json(Exchange& exchange, json::object& out) {
  const std::string_view content_type = exchange.request().headers.get("Content-Type").value_or("");
  if (!starts_with_ignoring_case(content_type, "application/json"))
    co_return refused(415, "send Content-Type: application/json");
  std::string text;
  if (co_await exchange.read_body(text, kActionBodyMax) != BodyRead::whole)
    co_return refused(400, "the body did not arrive whole");
  boost::system::error_code ec;
  json::value parsed = json::parse(text, ec);
  if (ec || !parsed.is_object()) co_return refused(400, "the body must be a JSON object");
  out = std::move(parsed.get_object());
  co_return std::nullopt;
}

Task<std::string> Admin::why_live(const RecordId& id) {
  const Result<std::optional<Found>> found = co_await look_up(id);
  if (found && found->has_value()) {
    const Found& now = **found;
    const std::int64_t left = retry_after_lease(now.record->lease_until - now.now).count();
    if (shared_.owner_is_gone(id, *now.record)) {
      co_return fmt::format(
          "the call ended without an answer and its outcome is unknown; the lease is over in {} s: try again then",
          left);
    }
  }
  co_return "the owner is still at work: its lease is live; try again when it is over";
}

void Admin::audit(const Exchange& exchange, const RecordId& id, const Record* record, std::string_view action,
                  std::string_view result, std::string_view reason) const {
  const std::string who = fmt::format("operator at {}", exchange.peer());
  audit_action(shared_, who, action, result, reason, &id, record);
  shared_.log.always(
      "operator_action",
      {{"action", action}, {"id", to_hex(id)}, {"result", result}, {"peer", exchange.peer()}, {"reason", reason}});
}

} // namespace oncekey
