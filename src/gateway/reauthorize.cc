#include "gateway/replier.h"

namespace oncekey {
namespace {

// The most that is read of the body of a positive answer. It is read so that the connection can be used again.
constexpr std::size_t kConsentBytesMax = 64u << 10;

bool is_key_header(const Policy& policy, std::string_view name) {
  if (equal_ignoring_case(name, "Idempotency-Key")) return true;
  return std::any_of(policy.key_from.begin(), policy.key_from.end(), [&](const KeySource& source) {
    return source.kind == KeySource::Kind::header && equal_ignoring_case(name, source.name);
  });
}

// The question has no body, is no retry, and must be answered in full.
bool belongs_to_the_request(const Policy& policy, std::string_view name) {
  return starts_with_ignoring_case(name, "Content-") || starts_with_ignoring_case(name, "If-") ||
         equal_ignoring_case(name, "Range") || equal_ignoring_case(name, "Prefer") || is_key_header(policy, name);
}

// Fields that differ between two requests of one caller and grant nothing. All others may be credentials, whatever they
// are called, and count.
bool says_nothing_of_the_caller(std::string_view name) {
  constexpr std::array<std::string_view, 12> kNothing = {
      "Accept",      "Accept-Encoding", "Accept-Language", "Connection",   "Date",    "Expect",
      "traceparent", "tracestate",      "User-Agent",      "X-Request-Id", "baggage", "X-Correlation-Id"};
  return std::any_of(kNothing.begin(), kNothing.end(),
                     [&](std::string_view known) { return equal_ignoring_case(known, name); });
}

// The caller that a positive answer is remembered for: everything that the upstream may have judged by.
HashBytes caller_of(const Exchange& exchange, const Route& route, const KeyedHash& hash) {
  const Headers& headers = exchange.request().headers;
  std::vector<std::string_view> parts{"oncekey reauthorized 1", route.state->rules_name, exchange.peer()};
  for (std::size_t i = 0; i < headers.size(); ++i) {
    const Field field = headers[i];
    if (belongs_to_the_request(route.policy, field.name) || says_nothing_of_the_caller(field.name)) continue;
    parts.insert(parts.end(), {field.name, field.value});
  }
  if (const CertificateName* const certificate = exchange.certificate())
    parts.insert(parts.end(), {"certificate", certificate->issuer, certificate->value});
  return hash.of(parts);
}

// Passes on the upstream's own refusal.
Task<void> pass_on(Exchange& exchange, UpstreamCall& call, const ResponseHead& answer, bool head_only) {
  std::optional<std::uint64_t> length;
  if (answer.framing == Framing::length) length = answer.content_length;
  if (head_only || answer.framing == Framing::none) length = 0;
  CallError error = CallError::none;
  bool going = co_await exchange.send_head(answer.status, answer.reason, end_to_end(answer.headers), length);
  while (going) {
    std::string_view piece;
    error = co_await call.read_piece(piece);
    if (error != CallError::none || piece.empty()) break;
    going = co_await exchange.send_piece(piece);
  }
  if (error != CallError::none) {
    exchange.abort();
  } else if (going) {
    (void)co_await exchange.send_end();
  }
}

UpstreamRequest question_of(const GatewayShared& shared, const Exchange& exchange, const Policy& policy) {
  const ForwardedFrom from{exchange.peer(), exchange.secure()};
  const UpstreamRequest forwarded = forward(exchange.request(), from, shared.self, {});
  UpstreamRequest question;
  question.method = policy.reauthorize->method;
  question.target = policy.reauthorize->target;
  question.headers =
      fields_where(forwarded.headers, [&](const Field& field) { return !belongs_to_the_request(policy, field.name); });
  return question;
}

Task<bool> ask_upstream(GatewayThread& thread, const Route& route, Replier& replier) {
  GatewayShared& shared = thread.shared;
  const Policy& policy = route.policy;
  Exchange& exchange = *replier.client();
  const MonotonicTime start = std::chrono::steady_clock::now();
  const bool remembers = policy.reauthorize_for.count() > 0;
  const HashBytes caller = remembers ? caller_of(exchange, route, shared.hash) : HashBytes{};
  if (remembers && shared.reauthorized.holds(caller, start)) co_return true;

  const Sharer sharer = sharer_of(shared, exchange);
  Holding place(shared.shares, Resource::places, sharer.address());
  if (const Grant grant = place.try_add(1); grant != Grant::given) {
    const Refusal refusal = refusal_of(grant, Resource::places);
    co_await replier.refuse(refusal);
    co_return false;
  }
  const UpstreamRequest question = question_of(shared, exchange, policy);
  UpstreamCall call(thread.pool_of(route.state->upstream));
  CallError error = co_await call.send(question, Framing::none, 0, {}, start + policy.upstream_timeout);
  ResponseHead answer;
  while (error == CallError::none && answer.status < 200) error = co_await call.read_head(answer);

  if (error == CallError::none && answer.status / 100 == 2) {
    for (std::size_t read = 0; error == CallError::none && read <= kConsentBytesMax;) {
      std::string_view piece;
      error = co_await call.read_piece(piece);
      if (piece.empty()) break;
      read += piece.size();
    }
    // The status has said it all: a body that breaks off takes nothing back.
    if (remembers) shared.reauthorized.remember(caller, start + policy.reauthorize_for);
    co_return true;
  }
  if (error == CallError::none && (answer.status == 401 || answer.status == 403)) {
    replier.count("not_authorized");
    co_await pass_on(exchange, call, answer, question.method == "HEAD");
    co_return false;
  }
  const std::string reason =
      error == CallError::none ? fmt::format("it answered {}", answer.status) : std::string(call.reason());
  shared.log.warning("not_reauthorized", {{"route", route.name}, {"reason", reason}});
  co_await replier.refuse(RefusalCode::not_reauthorized, std::chrono::seconds(1));
  co_return false;
}

} // namespace

Task<bool> may_see_answer(GatewayThread& thread, const Route& route, Replier& replier) {
  if (!route.policy.reauthorize) return true;
  return ask_upstream(thread, route, replier);
}

} // namespace oncekey
