#include "gateway/admission.h"

#include "core/decide.h"
#include "core/path.h"
#include "core/redaction.h"
#include "core/status_url.h"
#include "gateway/tracing.h"

namespace oncekey {
namespace {

Task<bool> tell_stripping(Exchange& exchange, const RouteMetrics& metrics, std::string_view field) {
  metrics.count("malformed", exchange);
  const std::string why = fmt::format("Connection names {}, which is not a field of one connection", field);
  co_await exchange.send_problem(400, why);
  co_return true;
}

// As much of a path as a person wants to read in a listing.
constexpr std::size_t kShownTargetMax = 1024;

} // namespace

ClaimRequest claim_for(const GatewayShared& shared, const KeyedRequest& request) {
  const Policy& policy = request.route.policy;
  return {.id = request.admitted.id,
          .fingerprint = request.admitted.fingerprint,
          .lease = policy.lease,
          .retention = request.admitted.retention,
          .abandoned = abandoned_rule(policy),
          .route = request.route.name,
          // What the store keeps for people is printable, so that no client can break a listing.
          .key = policy.redact ? redacted(shared.hash, request.admitted.key) : request.admitted.key,
          .method = request.head.method,
          .target = policy.redact ? redacted(shared.hash, request.head.path())
                                  : printable_target(request.head.path().substr(0, kShownTargetMax)),
          .context = {shared.name, request.trace, policy.lease, request.admitted.account}};
}

std::uint64_t claim_bytes(const KeyedRequest& request) {
  constexpr std::uint64_t kFixedBytes = 208;
  return kFixedBytes + request.admitted.key.size() + request.route.name.size() +
         std::min<std::size_t>(request.head.path().size(), kShownTargetMax);
}

bool has_key_header(const Policy& policy, const Headers& headers) {
  return std::any_of(policy.key_from.begin(), policy.key_from.end(), [&](const KeySource& source) {
    return source.kind == KeySource::Kind::header && headers.has(source.name);
  });
}

Refusal no_websocket(std::string_view detail) {
  return {RefusalCode::upgrade_with_key, std::string(detail), std::nullopt, {}};
}

Task<bool> refuse_stripping(Exchange& exchange, const RouteMetrics& metrics) {
  const std::optional<std::string_view> field = stripped_by_connection(exchange.request().headers);
  if (!field) return false;
  return tell_stripping(exchange, metrics, *field);
}

Admission::Admission(GatewayThread& thread, Exchange& exchange, const Route& route)
    : thread_(thread),
      exchange_(exchange),
      route_(route),
      policy_(route.policy),
      caller_(thread.shared, thread.verified_tokens, route, exchange),
      requester_(route.policy, exchange.request().headers, caller_.view()),
      observing_(route.policy.mode == Mode::observe),
      websocket_(asks_for_websocket(exchange.request())),
      sharer_(sharer_of(thread.shared, exchange)) {}

Admission::Outcome Admission::refuse(Refusal refusal) {
  refusal_ = std::move(refusal);
  return Outcome::refused;
}

Admission::Outcome Admission::pass() { return limited_.refusal ? refuse(*limited_.refusal) : Outcome::passes; }

Task<Admission::Outcome> Admission::ask() {
  const RequestHead& head = exchange_.request();
  const RequestView view{head.method, head.target, head.headers};
  if (!observing_) co_await ask_limits(thread_, exchange_, route_, requester_, limited_);
  if (limited_.refusal && !policy_.rate_exempts_replays) co_return refuse(*limited_.refusal);
  if (auto refusal = refuse_websocket_head()) co_return refuse(*std::move(refusal));

  ScreenAnswer screened = screen(policy_, view, requester_, thread_.shared.account_seed);
  if (auto* refusal = std::get_if<Refusal>(&screened)) co_return refuse(std::move(*refusal));
  if (co_await oncekey::refuse_stripping(exchange_, route_.state->metrics)) co_return Outcome::answered;
  if (std::holds_alternative<Unprotected>(screened)) co_return pass();

  ReadBody& wanted = std::get<ReadBody>(screened);
  if (wanted.account) sharer_.is_account(thread_.recent_accounts, *wanted.account);
  buffered_.emplace(thread_.shared, sharer_);
  body_asked_ = true;
  const BodyRead read = co_await exchange_.read_body(body_, policy_.max_request_body,
                                                     [this](std::size_t more) { return buffered_->try_hold(more); });
  if (read != BodyRead::whole) co_return co_await refuse_body(read);

  AdmitAnswer answer = admit(policy_, view, requester_, std::move(wanted.key), body_, thread_.shared.hash);
  if (auto* refusal = std::get_if<Refusal>(&answer)) co_return refuse(std::move(*refusal));
  if (std::holds_alternative<Unprotected>(answer)) co_return pass();
  admitted_ = std::move(std::get<Admitted>(answer));
  if (!websocket_) co_return Outcome::keyed;
  const bool of_fingerprint = admitted_.key.empty();
  co_return refuse(of_fingerprint ? no_websocket("This path makes a key of every request's fingerprint, and so takes "
                                                 "no WebSocket.")
                                  : no_websocket());
}

// Where keys are made of the fingerprint, admit() finds one later.
std::optional<Refusal> Admission::refuse_websocket_head() const {
  if (!websocket_ || observing_) return std::nullopt;
  if (policy_.key == MissingKey::required)
    return no_websocket("This path takes no request without a key, and so no WebSocket.");
  if (has_key_header(policy_, exchange_.request().headers)) return no_websocket();
  return std::nullopt;
}

Task<Admission::Outcome> Admission::refuse_body(BodyRead read) {
  if (read == BodyRead::refused) co_return refuse(refusal_of(buffered_->why(), Resource::buffered_bytes));
  if (read == BodyRead::too_large) {
    if (!observing_) {
      thread_.shared.log.seldom(LogLevel::info, "request_too_large", route_.name,
                                {{"route", route_.name},
                                 {"limit", policy_.max_request_body},
                                 {"next", "raise max_request_body of the route if such bodies are meant to come"}},
                                kHintEvery);
    }
    co_return refuse({RefusalCode::request_too_large,
                      fmt::format("At most {} bytes are allowed.", policy_.max_request_body),
                      {},
                      {}});
  }
  route_.state->metrics.count(exchange_.client_gone() ? "client_gone" : "malformed", exchange_);
  if (exchange_.fault()) co_await exchange_.send_problem(exchange_.fault().status, exchange_.fault().detail);
  co_return Outcome::answered;
}

KeyedRequest Admission::take() {
  const RequestHead& head = exchange_.request();
  const bool later = policy_.respond_async && prefers_async(head.headers);
  return {head,
          {exchange_.peer(), exchange_.secure()},
          route_,
          std::move(admitted_),
          std::move(body_),
          later,
          trace_of(exchange_)};
}

} // namespace oncekey
