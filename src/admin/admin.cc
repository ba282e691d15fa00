#include "admin/admin.h"

#include "admin/action_texts.h"
#include "admin/audit_lines.h"
#include "admin/console_files.h"
#include "admin/metrics_page.h"
#include "admin/record_json.h"

#include <algorithm>

namespace oncekey {
namespace {

namespace json = boost::json;

constexpr std::size_t kStormsMax = 100;

json::array actions_json(std::span<const ActionText> actions) {
  json::array all;
  for (const ActionText& each : actions) {
    json::array needs{"reason", "confirm"};
    if (each.action == "complete") needs.push_back("status");
    all.push_back(json::object{{"action", json_text(each.action)},
                               {"title", json_text(each.title)},
                               {"meaning", json_text(each.meaning)},
                               {"risk", json_text(each.risk)},
                               {"needs", std::move(needs)}});
  }
  return all;
}

// Whether the path fits the pattern; fills in what its stars stand for.
bool fits(std::string_view pattern, std::string_view path, PageRequest& request) {
  std::string* const stars[] = {&request.id, &request.action};
  std::size_t star = 0;
  while (!pattern.empty() && !path.empty()) {
    if (pattern.front() != '*') {
      if (pattern.front() != path.front()) return false;
      pattern.remove_prefix(1);
      path.remove_prefix(1);
      continue;
    }
    const std::string_view part = path.substr(0, path.find('/'));
    if (part.empty() || star == std::size(stars)) return false;
    *stars[star++] = part;
    pattern.remove_prefix(1);
    path.remove_prefix(part.size());
  }
  return pattern.empty() && path.empty();
}

// A page that does not wait.
Task<PageAnswer> at_once(PageAnswer answer) { co_return answer; }

} // namespace

Admin::Admin(GatewayShared& shared, const StoreCounts& counts, Loop& loop, const std::string& version)
    : shared_(shared),
      audit_(shared.log),
      access_(shared, loop, audit_, version),
      overview_(shared, counts, loop, version),
      keys_(shared, loop, audit_),
      jobs_(shared, loop, audit_),
      bulk_(shared, loop, audit_),
      store_(shared, loop, audit_),
      pages_(pages()),
      audit_log_(shared, loop) {
  audit_.write_into([&shared](const AuditLine& line) { audit_action(shared, line); });
}

void Admin::serves(const Server& gateway) {
  gateway_ = &gateway;
  overview_.serves(gateway);
}

void Admin::reads_audit_log() {
  audit_.read_older([this](const RecordId& id) { return audit_log_.about(id); });
}

void Admin::stop() {
  overview_.stop();
  bulk_.stop_all();
}

// The first that fits counts.
std::vector<Admin::Page> Admin::pages() {
  using R = PageRequest;
  return {
      {"GET", "/readyz", Needs::reader, Kind::reads, [this](R&) { return at_once(ready(false)); }},
      {"GET", "/metrics", Needs::reader, Kind::reads,
       [this](R& r) { return at_once(metrics_page(shared_, gateway_, r.exchange.request().headers)); }},
      {"GET", "/api/session", Needs::reader, Kind::polled, [this](R& r) { return at_once(access_.show(r.visitor)); }},
      {"POST", "/api/logout", Needs::session, Kind::reads,
       [this](R& r) { return at_once(access_.log_out(r.exchange, r.visitor)); }},
      {"POST", "/api/login/codes", Needs::proof, Kind::reads,
       [this](R& r) { return at_once(access_.make_code(r.visitor, r.text("role"))); }},
      {"GET", "/api/overview", Needs::reader, Kind::polled,
       [this](R& r) { return at_once(overview_.show(r.query, bulk_.under_way())); }},
      {"GET", "/api/storms", Needs::reader, Kind::polled,
       [this](R&) { return at_once(json_answer(overview_.storms(kStormsMax))); }},
      {"GET", "/api/actions", Needs::reader, Kind::reads, [this](R&) { return at_once(actions()); }},
      {"GET", "/api/audit", Needs::reader, Kind::reads, [this](R& r) { return audit_page(r); }},
      {"POST", "/api/audit/find", Needs::reader, Kind::reads, [this](R& r) { return audit_log_.find(r.given); }},
      {"GET", "/api/keys", Needs::reader, Kind::reads, [this](R& r) { return keys_.list(r); }},
      {"POST", "/api/keys/find", Needs::reader, Kind::reads, [this](R& r) { return keys_.find(r); }},
      {"GET", "/api/keys/*", Needs::reader, Kind::reads, [this](R& r) { return keys_.show(r); }},
      {"POST", "/api/keys/*/*", Needs::operators, Kind::acts, [this](R& r) { return keys_.act(r); }},
      {"GET", "/api/jobs", Needs::reader, Kind::reads, [this](R& r) { return jobs_.list(r); }},
      {"GET", "/api/jobs/runs", Needs::reader, Kind::polled, [this](R&) { return at_once(bulk_.list()); }},
      {"GET", "/api/jobs/runs/*", Needs::reader, Kind::polled, [this](R& r) { return at_once(bulk_.show(r)); }},
      {"POST", "/api/jobs/runs/*/stop", Needs::operators, Kind::acts, [this](R& r) { return at_once(bulk_.stop(r)); }},
      {"GET", "/api/jobs/*", Needs::reader, Kind::reads, [this](R& r) { return jobs_.show(r); }},
      {"POST", "/api/jobs/retry", Needs::operators, Kind::acts_on_many,
       [this](R& r) {
         r.action = "retry";
         return bulk_.begin(r);
       }},
      {"POST", "/api/jobs/drop", Needs::operators, Kind::acts_on_many,
       [this](R& r) {
         r.action = "drop";
         return bulk_.begin(r);
       }},
      {"GET", "/api/store", Needs::reader, Kind::reads, [this](R&) { return store_.show(); }},
      {"GET", "/api/store/backup", Needs::reader, Kind::polled, [this](R&) { return at_once(store_.show_backup()); }},
      {"POST", "/api/store/backup", Needs::operators, Kind::acts,
       [this](R& r) { return at_once(store_.begin_backup(r)); }},
      {"POST", "/api/jobs/*/*", Needs::operators, Kind::acts, [this](R& r) { return jobs_.act(r); }},
  };
}

Headers Admin::answer_headers() {
  Headers headers;
  headers.add("X-Content-Type-Options", "nosniff");
  headers.add("X-Frame-Options", "DENY");
  headers.add("Referrer-Policy", "no-referrer");
  headers.add("Cross-Origin-Opener-Policy", "same-origin");
  headers.add("Cross-Origin-Resource-Policy", "same-origin");
  headers.add("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'");
  return headers;
}

Task<void> Admin::handle(Exchange& exchange) {
  const RequestHead& head = exchange.request();
  if (is_reading(head) && is_console_path(head.path()) && !access_.refuse_foreign_host(exchange)) {
    co_await send_console_file(exchange);
    co_return;
  }
  const PageAnswer answered = co_await answer(exchange);
  if (exchange.client_gone()) co_return;
  Headers headers = answered.headers;
  headers.add("Content-Type", answered.content_type);
  headers.add("Cache-Control", "no-store");
  co_await exchange.send(answered.status, {}, headers, answered.body);
}

Task<PageAnswer> Admin::answer(Exchange& exchange) {
  const RequestHead& head = exchange.request();
  const std::string_view path = head.path();
  const bool reading = is_reading(head);
  // Probes name hosts as they like, and learn a word.
  if (reading && path == "/livez") co_return PageAnswer{200, R"({"status":"alive","listener":"oncekey-admin"})"};
  const bool anonymous = access_.is_anonymous(exchange);
  if (reading && path == "/readyz" && anonymous) co_return ready(true);
  if (auto refusal = access_.refuse_foreigners(exchange)) co_return *std::move(refusal);
  if (head.method == "POST" && path == "/api/login") {
    json::object given;
    std::string body;
    if (auto refusal = co_await read_json(exchange, kLoginBytesMax, given, body)) co_return *std::move(refusal);
    co_return co_await access_.log_in(exchange, given);
  }
  if (reading && path == "/metrics" && anonymous && is_loopback(shared_.config().admin))
    co_return metrics_page(shared_, gateway_, head.headers);
  Access::Entry entry = co_await access_.let_in(exchange);
  if (!entry.visitor) co_return std::move(entry.refusal);
  co_return co_await answer_visitor(exchange, *entry.visitor);
}

const Admin::Page* Admin::find_page(const RequestHead& head, PageRequest& request) const {
  const std::string_view method = is_reading(head) ? "GET" : std::string_view(head.method);
  for (const Page& page : pages_) {
    if (page.method == method && fits(page.path, head.path(), request)) return &page;
  }
  return nullptr;
}

Task<PageAnswer> Admin::answer_visitor(Exchange& exchange, const Visitor& visitor) {
  const RequestHead& head = exchange.request();
  if (auto refusal = Access::refuse_forgeries(exchange, visitor)) co_return *std::move(refusal);
  PageRequest request{exchange, visitor};
  request.query = query_of(head.target);
  const Page* const page = find_page(head, request);
  if (page == nullptr) co_return no_such_page();
  if (page->needs == Needs::operators && !visitor.may_act())
    co_return refused(403, "the read-only role cannot act: use the operators' token", "operators_only");
  if (page->needs == Needs::proof && visitor.means == Visitor::Means::session)
    co_return refused(403, "a session cannot make login codes: use the token or the certificate itself", "csrf");
  if (page->needs == Needs::session && visitor.means != Visitor::Means::session)
    co_return refused(400, "there is no session to end");
  if (query_value(request.query, "body") == "1") {
    if (!visitor.may_act())
      co_return refused(403,
                        "the read-only role sees no bodies: leave out body=1 (oncekey keys show --no-body), or use the "
                        "operators' token",
                        "operators_only");
    request.bodies = Bodies::shown;
  }
  if (page->kind != Kind::polled || !visitor.may_act()) access_.used(visitor);
  std::string body;
  if (page->method == "POST") {
    if (auto refusal = co_await read_json(exchange, kVisitorBytesMax, request.given, body))
      co_return *std::move(refusal);
  }
  if (page->kind != Kind::acts && page->kind != Kind::acts_on_many) co_return co_await page->run(request);
  co_return co_await act_once(*page, request, body);
}

Task<PageAnswer> Admin::act_once(const Page& page, PageRequest& request, const std::string& body) {
  if (const json::value* const dry = request.given.if_contains("dry_run")) {
    if (!dry->is_bool()) co_return refused(400, "dry_run: expected true or false");
    if (page.kind != Kind::acts_on_many)
      co_return refused(400, "dry_run: expected with /api/jobs/retry and /api/jobs/drop alone; nothing was done");
    if (dry->get_bool()) co_return co_await page.run(request);
  }
  if (request.text("reason").find_first_not_of(" \t\r\n") == std::string_view::npos)
    co_return refused(400, "say why: \"reason\" goes into the audit trail");
  const Headers& headers = request.exchange.request().headers;
  const std::string key(headers.get("Idempotency-Key").value_or(""));
  if (headers.count("Idempotency-Key") > 1 || key.size() > ActionMemory::kKeyLengthMax)
    co_return refused(400, "Idempotency-Key: expected one of at most 255 characters");
  if (key.empty()) {
    if (request.visitor.means == Visitor::Means::session)
      co_return refused(400, "send an Idempotency-Key, new for every decision, so that a double click acts once");
    PageAnswer answer = co_await page.run(request);
    co_await audit_log_.written();
    co_return answer;
  }
  // Not the session's name: the same person repeats an action after another login.
  const std::string who = request.visitor.login.name();
  const ActionMemory::Asked asked =
      acted_.begin(who, key, fmt::format("{}\n{}", request.exchange.request().path(), body));
  if (std::holds_alternative<ActionMemory::UnderWay>(asked))
    co_return refused(409, "this action is under way: ask again in a moment with the same Idempotency-Key",
                      "under_way");
  if (std::holds_alternative<ActionMemory::Other>(asked))
    co_return refused(422, "this Idempotency-Key was used for another action: use a new one", "key_reused");
  if (const PageAnswer* const first = std::get_if<PageAnswer>(&asked)) {
    PageAnswer again = *first;
    again.headers.add("Idempotent-Replayed", "true");
    co_return again;
  }
  PageAnswer answer;
  try {
    answer = co_await page.run(request);
    co_await audit_log_.written(); // a kill after the answer does not lose the line
  } catch (...) {
    acted_.forget(who, key);
    throw;
  }
  // A refusal has changed nothing: another click may try again. After a fault the store's guards decide.
  if (answer.status < 300) {
    acted_.end(who, key, answer);
  } else {
    acted_.forget(who, key);
  }
  co_return answer;
}

PageAnswer Admin::ready(bool stranger) const {
  const Readiness ready = readiness(shared_, gateway_);
  const bool is_ready = ready.state == "ready";
  json::object body;
  if (!stranger) body["durability"] = json_text(to_string(shared_.store.durability()));
  body["status"] = is_ready ? "ready" : "not ready";
  // The fault names paths and hosts.
  if (!is_ready) body["reason"] = json_text(stranger ? ready.state : ready.reason);
  return json_answer(body, is_ready ? 200 : 503);
}

PageAnswer Admin::actions() const {
  return json_answer({{"keys", actions_json(key_actions())}, {"jobs", actions_json(job_actions())}});
}

Task<PageAnswer> Admin::audit_page(const PageRequest& request) {
  return shared_.audit != nullptr ? audit_log_.list(request.query) : at_once(audit_memory_page(audit_, request.query));
}

PageAnswer Admin::no_such_page() const {
  json::array available{"GET /livez", "POST /api/login"};
  for (const Page& page : pages_) available.push_back(json_text(fmt::format("{} {}", page.method, page.path)));
  return json_answer({{"error", "Not found. `available` has what there is"},
                      {"code", "not_found"},
                      {"available", std::move(available)}},
                     404);
}

} // namespace oncekey
