#include "gateway/replier.h"

#include "core/redaction.h"
#include "gateway/compression.h"
#include "gateway/tracing.h"

#include <random>

namespace oncekey {
namespace {

// "req_" and sixteen characters, fresh.
std::string make_request_id() {
  static constexpr char kAlphabet[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZabcdefghjkmnpqrstvwxyz";
  thread_local std::mt19937_64 generator(random_u64());
  std::string id = "req_";
  for (int i = 0; i < 16; ++i) id.push_back(kAlphabet[generator() % (sizeof kAlphabet - 1)]);
  return id;
}

} // namespace

Replier::Replier(const Replier& other, TraceNote* trace)
    : thread_(other.thread_),
      policy_(other.policy_),
      metrics_(other.metrics_),
      client_(nullptr),
      trace_(trace),
      id_(other.id_),
      key_(other.key_),
      as_sent_(other.as_sent_),
      request_id_(other.request_id()),
      audited_(other.audited_) {}

void Replier::key_is(const RecordId& id, std::string key, std::string as_sent) {
  id_ = id;
  key_ = std::move(key);
  as_sent_ = std::move(as_sent);
  GatewayShared& shared = thread_.shared;
  if (policy_.audit != AuditScope::decisions || shared.audit == nullptr) return;
  const auto trace = client_ == nullptr ? std::nullopt : trace_of(*client_);
  // In an encrypted store no key is readable; neither is one beside it.
  const bool hidden = policy_.redact || !shared.config().encryption_key_file.empty();
  audited_ = Audited{
      to_hex(id), hidden ? redacted(shared.hash, key_) : key_, trace ? hex_encode(*trace) : std::string(), {}, 0};
}

void Replier::audit(std::string_view event, std::string_view decision, int status) const {
  if (!audited_) return;
  thread_.shared.audit->write({.event = event,
                               .record = audited_->record,
                               .key = audited_->key,
                               .route = metrics_.route(),
                               .decision = decision,
                               .status = status,
                               .fence = audited_->fence,
                               .trace = audited_->trace,
                               .first_trace = audited_->first_trace});
}

void Replier::fence_is(std::uint64_t fence) {
  if (audited_) audited_->fence = fence;
}

void Replier::note_record(const Record& record) {
  if (!audited_) return;
  audited_->fence = record.fence;
  audited_->first_trace = record.context.trace ? hex_encode(*record.context.trace) : std::string();
}

void Replier::link_to_execution(const Record& record) {
  if (trace_ == nullptr || !record.context.trace || !id_) return;
  const SpanId call = upstream_span(thread_.shared.hash, *record.context.trace, *id_, record.fence);
  trace_->link = TraceNote::Link{*record.context.trace, call};
}

const std::string& Replier::request_id() const {
  if (request_id_.empty() && policy_.errors == ErrorFormat::stripe) request_id_ = make_request_id();
  return request_id_;
}

ReplyContext Replier::context() const {
  const auto origin = client_ != nullptr ? client_->request().headers.get("Origin") : std::nullopt;
  return {as_sent_, request_id(), origin.value_or(std::string_view{})};
}

void Replier::count(std::string_view decision) const {
  if (client_ == nullptr) {
    metrics_.count(decision);
  } else {
    metrics_.count(decision, *client_);
  }
}

Task<void> Replier::refuse(RefusalCode code, std::optional<std::chrono::seconds> retry_after, Fate fate) {
  const Refusal refusal{code, {}, retry_after, {}, {}, fate};
  co_await refuse(refusal);
}

Task<void> Replier::refuse(const Refusal& refusal) {
  count(to_string(refusal.code));
  Log& log = thread_.shared.log;
  if (id_ && log.enabled(LogLevel::debug)) {
    log.write(LogLevel::debug, "refused", {{"key", short_hash(*id_)}, {"code", to_string(refusal.code)}});
  }
  if (refusal.code == RefusalCode::principal_missing) {
    log.seldom(LogLevel::warning, "principal_missing", metrics_.route(),
               {{"route", metrics_.route()},
                {"next",
                 "requests with a key are refused: set scope to where this API finds the account, as in "
                 "scope = \"cookie:session\", or \"global\" if there are no accounts"}},
               kHintEvery);
  }
  Refusal named = refusal;
  if (named.key.empty()) named.key = key_;
  const Reply reply = oncekey::refuse(policy_, named, context());
  audit("refused", to_string(refusal.code), reply.status);
  co_await send_own(reply);
}

Task<void> Replier::send_own(const Reply& reply) {
  if (client_ == nullptr) return std::monostate{};
  client_->answer_is_own();
  return client_->send(reply.status, reply.reason, reply.headers, reply.body);
}

Reply Replier::pending_reply(std::string_view url, Millis age) const {
  const std::chrono::seconds after = retry_after(age, metrics_.usual_duration.estimate());
  Reply reply;
  reply.status = 202;
  reply.reason = "Accepted";
  reply.headers.add("Content-Type", "application/json");
  reply.headers.add("Cache-Control", "no-store");
  reply.headers.add("Retry-After", fmt::format_int(after.count()).c_str());
  if (!as_sent_.empty()) reply.headers.add("Idempotency-Key", as_sent_);
  // base64url and a fixed path: nothing in it needs escaping.
  reply.body = fmt::format("{{\"status\":\"in_progress\",\"location\":\"{}\"}}\n", url);
  return reply;
}

Task<void> Replier::send_accepted(std::string_view url, Millis age) {
  count("accepted");
  audit("accepted", "accepted", 202);
  Reply reply = pending_reply(url, age);
  reply.headers.add("Location", url);
  reply.headers.add("Preference-Applied", "respond-async");
  if (!request_id().empty()) reply.headers.add("Request-Id", request_id());
  co_await send_own(reply);
}

Task<void> Replier::send_pending(std::string_view url, Millis age) {
  count("status_pending");
  const Reply reply = pending_reply(url, age);
  co_await send_own(reply);
}

Task<void> Replier::send_answer(BufferedBytes& buffered, const Reply& head, std::string_view body) {
  if (client_ == nullptr) return std::monostate{};
  if (policy_.compress) return send_compressible(buffered, head, body);
  return client_->send(head.status, head.reason, head.headers, body);
}

Task<void> Replier::send_compressible(BufferedBytes& buffered, const Reply& head, std::string_view body) {
  const RequestHead& request = client_->request();
  const bool fits = request.method != "HEAD" && may_compress(head.status, head.headers, body.size());
  std::string compressed;
  if (fits && accepts_gzip(request.headers)) {
    buffered.hold(body.size()); // at most as long as what it is made of, and kept until the client has taken it
    compressed = co_await gzip(thread_.loop, body);
  }
  Headers headers = compressed.empty() ? head.headers : headers_of_compressed(head.headers);
  add_vary(headers);
  if (!compressed.empty()) body = compressed;
  co_await client_->send(head.status, head.reason, headers, body);
}

// Not a coroutine: where no upstream is asked, and the answer fits into the socket's buffer, a replay needs none.
Task<void> Replier::replay(const Route& route, BufferedBytes& buffered, const StoredResponse& response) {
  if (client_ == nullptr) return std::monostate{};
  Task<bool> allowed = may_see_answer(thread_, route, *this);
  if (!allowed.await_ready()) return replay_if(std::move(allowed), buffered, response);
  return allowed.await_resume() ? send_replay(buffered, response) : std::monostate{};
}

Task<void> Replier::replay_if(Task<bool> allowed, BufferedBytes& buffered, const StoredResponse& response) {
  const bool is_allowed = co_await std::move(allowed);
  if (is_allowed) co_await send_replay(buffered, response);
}

Task<void> Replier::send_replay(BufferedBytes& buffered, const StoredResponse& response) {
  if (!buffered.try_hold_answer(thread_.shared, response.body.size()))
    return refuse(refusal_of(buffered.why(), Resource::buffered_bytes));
  count("replay");
  audit("replayed", "replay", response.status);
  if (policy_.compress) return send_compressible_replay(buffered, response);
  const Reply head = replay_head(policy_, response, context());
  return client_->send(head.status, head.reason, head.headers, response.body);
}

Task<void> Replier::send_compressible_replay(BufferedBytes& buffered, const StoredResponse& response) {
  const Reply head = replay_head(policy_, response, context());
  co_await send_compressible(buffered, head, response.body);
}

std::optional<Task<void>> Replier::answer_settled(const Route& route, BufferedBytes& buffered, Verdict verdict,
                                                  const Record& record) {
  note_record(record);
  switch (verdict) {
    case Verdict::replay:
      link_to_execution(record);
      return replay(route, buffered, *record.response);
    case Verdict::mismatch:
      return refuse(RefusalCode::mismatch);
    case Verdict::indeterminate:
      return refuse(RefusalCode::indeterminate);
    case Verdict::answer_not_kept:
      return refuse(RefusalCode::answer_not_kept);
    case Verdict::execute:
    case Verdict::probe:
    case Verdict::in_progress:
    case Verdict::hold:
      break;
  }
  return std::nullopt;
}

Task<void> Replier::refuse_in_progress(const RecordId& id, const Decision& decision, const Record& record) {
  const bool gone = decision.lease_left.count() > 0 && thread_.shared.owner_is_gone(id, record);
  const std::chrono::seconds after =
      gone ? retry_after_lease(decision.lease_left) : retry_after(decision.age, metrics_.usual_duration.estimate());
  note_record(record);
  return refuse(RefusalCode::in_progress, after, gone ? Fate::owner_gone : Fate::by_code);
}

} // namespace oncekey
