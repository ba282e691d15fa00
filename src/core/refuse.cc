// The gateway's refusals: one table with a row for every code, and the two formats they are written in.
#include "base/enum_name.h"
#include "base/json_text.h"
#include "base/reasons.h"
#include "core/replies.h"

#include <fmt/format.h>

#include <array>

namespace oncekey {
namespace {

// Stripe-Should-Retry: true means that trying again after a pause makes sense, false that it changes nothing; without
// the header clients go by the status.
enum class ShouldRetry { yes, no, unsaid };

struct Standing {
  RefusalCode code;
  int status;
  std::string_view stripe_type;
  std::string_view stripe_code; // empty: Stripe documents none
  ShouldRetry should_retry;
  std::string_view title;
  std::string_view detail; // what it means and what to do next
};

constexpr std::string_view kInvalidRequest = "invalid_request_error";
constexpr std::string_view kIdempotency = "idempotency_error";
constexpr std::string_view kApi = "api_error";

// In the order of the enum. Status 0: the policy's own.
constexpr auto kStandings = [] {
  using enum RefusalCode;
  using enum ShouldRetry;
  return std::to_array<Standing>(
      {{key_missing, 400, kInvalidRequest, "idempotency_key_missing", no, "Idempotency-Key is missing",
        "This operation needs an idempotency key. Send the request again with a unique key, such as a UUID."},
       {key_invalid, 400, kInvalidRequest, "idempotency_key_invalid", no, "Idempotency-Key is invalid",
        "The idempotency key cannot be used, and nothing was executed. Send 1 to 255 visible ASCII characters."},
       {key_repeated, 400, kInvalidRequest, "idempotency_key_repeated", no, "Idempotency-Key is repeated",
        "The request has more than one idempotency key, and nothing was executed. Send exactly one."},
       {key_in_connection, 400, kInvalidRequest, "idempotency_key_in_connection", no,
        "Connection names a header of the Idempotency-Key",
        "The Connection header names a header that the key depends on, which would remove it on the way. Nothing was "
        "executed; send the request without that name in Connection."},
       {upgrade_with_key, 400, kInvalidRequest, "upgrade_with_key", no, "A WebSocket cannot have an Idempotency-Key",
        "A key stands for one request with one answer, and a WebSocket is neither. Nothing was executed."},
       {path_ambiguous, 400, kInvalidRequest, "path_ambiguous", no, "The path can be read in several ways",
        "The API might take this path for another one, whose keys would be passed by. Nothing was executed."},
       {principal_missing, 400, kInvalidRequest, "idempotency_principal_missing", no,
        "The account behind the Idempotency-Key is missing",
        "The request names no account, and keys belong to accounts. Nothing was executed; send the credentials this "
        "API asks for, once."},
       {token_invalid, 401, kInvalidRequest, "token_invalid", no, "The token of this account is not valid",
        "A key belongs to an account, and the bearer token does not prove which. Nothing was executed; send the same "
        "request with the same key and a valid token."},
       {jwks_unavailable, 503, kApi, "jwks_unavailable", yes, "Tokens cannot be verified",
        "The keys that bearer tokens are verified with could not be fetched. Nothing was executed; send the same "
        "request with the same key again."},
       {not_reauthorized, 503, kApi, "not_reauthorized", yes, "The credentials could not be checked",
        "The answer is there, and the API did not say whether these credentials may still see it. Nothing was executed "
        "by this request; send the same request with the same key again."},
       {mismatch, 0, kIdempotency, "", no, "Idempotency-Key is already used",
        "This key was used before with a different request. Nothing was executed and the first request's answer "
        "stands. Send the same request again, or use a new key for a new operation."},
       {in_progress, 0, kInvalidRequest, "idempotency_key_in_use", yes,
        "A request is outstanding for this Idempotency-Key",
        "The first request with this key is still being worked on. Send the same request with the same key again after "
        "the time in Retry-After."},
       {indeterminate, 409, kIdempotency, "idempotency_outcome_unknown", no,
        "The outcome of this Idempotency-Key is unknown",
        "The first request with this key may or may not have been executed, and retrying will not settle it. Ask the "
        "API's operator to settle the key; a new key could execute the operation twice."},
       {answer_not_kept, 409, kIdempotency, "idempotency_answer_not_kept", no,
        "The answer for this Idempotency-Key was not kept",
        "The operation was executed and will not be executed again, but its answer could not be kept. Read the result "
        "from the API itself."},
       {request_too_large, 413, kInvalidRequest, "request_too_large", no, "The request is too large",
        "A request with an idempotency key is read whole before it is forwarded, and this one is over the limit. "
        "Nothing was executed; send a smaller body."},
       {store_unavailable, 503, kApi, "idempotency_unavailable", yes, "Idempotency is unavailable",
        "The store of idempotency keys does not work at the moment. Nothing was executed; send the same request with "
        "the same key again."},
       {record_not_written, 503, kApi, "idempotency_record_not_written", yes, "The answer could not be recorded",
        "The operation may have been executed, but its answer could not be made durable and is withheld. Send the same "
        "request with the same key again; do not use a new key."},
       {upstream_unreachable, 503, kApi, "upstream_unreachable", yes, "The API cannot be reached",
        "No connection to the API could be made. Nothing was executed; send the same request with the same key again."},
       {upstream_unknown, 502, kApi, "upstream_unknown", unsaid, "The API did not answer completely",
        "The request was forwarded and may have been executed. Send the same request with the same key again; do not "
        "use a new key."},
       {upstream_timeout, 504, kApi, "upstream_timeout", unsaid, "The API did not answer in time",
        "The request was forwarded and may have been executed. Send the same request with the same key again; do not "
        "use a new key."},
       {answer_unusable, 502, kApi, "answer_unusable", no, "The answer of the API cannot be passed on",
        "The operation was executed and will not be executed again, but the answer of the API is malformed or over a "
        "limit. Read the result from the API itself; do not use a new key."},
       {overloaded, 503, kApi, "overloaded", yes, "Too busy",
        "A limit was reached, and this request executed nothing. Send the same request with the same key again."},
       {draining, 503, kApi, "draining", yes, "Shutting down",
        "This gateway is stopping. Nothing was executed; send the same request with the same key again."},
       {rate_limited, 429, kInvalidRequest, "rate_limit", yes, "Too many requests",
        "This account sends requests faster than it may. Nothing was executed; send the same request with the same key "
        "again after the time in Retry-After."},
       {too_many_in_flight, 429, kInvalidRequest, "rate_limit", yes, "Too many requests at once",
        "This account has as many requests under way as it may. Nothing was executed; send the same request with the "
        "same key again when one of them has been answered."},
       {over_share, 429, kInvalidRequest, "rate_limit", yes, "Too much at once",
        "This caller holds as much of the gateway as one caller may while others need it too. Nothing was executed; "
        "send the same request with the same key again after the time in Retry-After."},
       {store_full, 503, kApi, "idempotency_store_full", yes, "No room for a new Idempotency-Key",
        "The store of idempotency keys has no room left. Nothing was executed; send the same request with the same key "
        "again later."},
       {abandoned, 409, kIdempotency, "idempotency_operation_abandoned", no, "The operation was broken off",
        "The operation was begun and its owner is gone. Send the request that began it, with the same key, again; "
        "asking here changes nothing."},
       {operation_unknown, 404, kInvalidRequest, "resource_missing", no, "No such operation",
        "This account has no operation under this URL: it never began, was not executed, has no answer that is kept, "
        "or has expired. To have it executed, send the request that began it, with the same key, again."},
       {request_invalid, 400, kInvalidRequest, "request_invalid", no, "The request cannot be kept",
        "A part of the request is not UTF-8 text or holds a zero byte. Nothing was executed; correct it and send the "
        "request again."},
       {not_finished, 503, kApi, "operation_not_finished", yes, "The operation could not be finished yet",
        "The operation was begun and waits where it stopped. Send the same request with the same key again, and it "
        "goes on from there; do not use a new key."},
       {application_mistake, 500, kApi, "operation_cannot_be_run", no, "The operation cannot be run",
        "The application has a mistake that trying again does not mend. Tell the API's operator; when it is mended, "
        "the same request with the same key goes on."}});
}();

Standing standing_of(const Policy& policy, RefusalCode code) {
  Standing standing = kStandings[static_cast<std::size_t>(code)];
  if (code == RefusalCode::mismatch) standing.status = policy.mismatch_status;
  if (code == RefusalCode::in_progress) standing.status = policy.in_progress_status;
  return standing;
}

constexpr bool every_row_is_at_its_place() {
  std::size_t at = 0;
  bool in_order = true;
  each_enumerator<RefusalCode>(
      [&](RefusalCode code) { in_order = in_order && at < kStandings.size() && kStandings[at++].code == code; });
  return in_order && at == kStandings.size();
}
static_assert(every_row_is_at_its_place());

// Why a request that found the work of another request under its key was refused.
std::string_view cause_of(const Standing& standing) {
  switch (standing.code) {
    case RefusalCode::upstream_unreachable:
      return "No connection to the API could be made for this request.";
    case RefusalCode::store_unavailable:
    case RefusalCode::draining:
    case RefusalCode::rate_limited:
    case RefusalCode::too_many_in_flight:
    case RefusalCode::over_share:
    case RefusalCode::store_full:
      return standing.detail.substr(0, standing.detail.find('.') + 1); // the first sentence
    default:
      return "A limit was reached.";
  }
}

std::string standing_detail(const Standing& standing, const Refusal& refusal) {
  switch (refusal.fate) {
    case Fate::by_code:
      break;
    case Fate::still_running:
      return fmt::format(
          "{} The first request with this key is still being worked on; send the same request with the same key again.",
          cause_of(standing));
    case Fate::owner_gone:
      return fmt::format(
          "The first request with this key ended without an answer and may have been executed: its outcome is unknown. "
          "Send the same request with the same key again in {} s; do not use a new key.",
          refusal.retry_after.value_or(std::chrono::seconds(1)).count());
    case Fate::maybe_executed:
      return fmt::format(
          "{} An earlier try with this key may have been executed; send the same request with the same key again, and "
          "do not use a new key.",
          cause_of(standing));
    case Fate::not_told:
      return "An earlier try with this key may have been executed, and the API did not answer the question whether it "
             "was. Send the same request with the same key again; do not use a new key.";
    case Fate::held:
      return "The request was forwarded and may have been executed, and retrying will not settle it. Ask the API's "
             "operator to settle the key; a new key could execute the operation twice.";
    case Fate::released:
      return "The answer of the API is malformed or over a limit. Its status says that the operation may be tried "
             "again; send the same request with the same key again.";
  }
  return std::string(standing.detail);
}

std::string full_detail(const Standing& standing, const Refusal& refusal) {
  std::string detail = standing_detail(standing, refusal);
  if (!refusal.detail.empty()) detail.append(" ").append(refusal.detail);
  return detail;
}

void append_member(std::string& json, std::string_view name, std::string_view value) {
  if (json.back() != '{') json.push_back(',');
  append_json_string(json, name);
  json.push_back(':');
  append_json_string(json, value);
}

std::string problem_body(const Standing& standing, const Refusal& refusal) {
  const std::string type = fmt::format("urn:oncekey:problem:{}", to_string(refusal.code));
  return problem_json(type, standing.title, standing.status, full_detail(standing, refusal)) + "\n";
}

// Stripe's own sentences where it has them: clients compare them.
std::string stripe_message(const Standing& standing, const Refusal& refusal, std::string_view key) {
  if (refusal.code == RefusalCode::mismatch) {
    return fmt::format(
        "Keys for idempotent requests can only be used with the same parameters they were first used with. Try using a "
        "key other than '{}' if you meant to execute a different request.",
        key);
  }
  if (refusal.code == RefusalCode::in_progress && refusal.fate != Fate::owner_gone) {
    return fmt::format(
        "There is currently another in-progress request using this Idempotent Key (that probably means you submitted "
        "twice, and the other request is still going through): {}. Please try again later.",
        key);
  }
  return full_detail(standing, refusal);
}

std::string stripe_body(const Standing& standing, const Refusal& refusal, std::string_view key) {
  std::string json = "{\"error\":{";
  append_member(json, "type", standing.stripe_type);
  if (!standing.stripe_code.empty()) append_member(json, "code", standing.stripe_code);
  if (refusal.code == RefusalCode::in_progress)
    append_member(json, "doc_url", "https://stripe.com/docs/error-codes/idempotency-key-in-use");
  append_member(json, "message", stripe_message(standing, refusal, key));
  json += "}}\n";
  return json;
}

// Whether the key may be echoed. A key that was refused is not: it may hold any bytes, and is not this request's key.
bool key_was_good(RefusalCode code) {
  using enum RefusalCode;
  return code != key_missing && code != key_invalid && code != key_repeated && code != key_in_connection &&
         code != upgrade_with_key && code != path_ambiguous;
}

} // namespace

std::string_view to_string(RefusalCode code) { return enum_name(code); }

Reply refuse(const Policy& policy, const Refusal& refusal, const ReplyContext& context) {
  Standing standing = standing_of(policy, refusal.code);
  if (refusal.fate == Fate::not_told) standing.title = "The API did not answer";
  if (refusal.fate == Fate::owner_gone) standing.title = "The outcome of the first request is unknown for now";
  if (refusal.fate == Fate::released) standing.should_retry = ShouldRetry::yes;
  Reply reply;
  reply.status = standing.status;
  reply.reason = reason_of(standing.status);

  auto retry_after = refusal.retry_after;
  if (!retry_after && (standing.status == 503 || standing.status == 429 || refusal.code == RefusalCode::in_progress))
    retry_after = std::chrono::seconds(1);
  switch (policy.errors) {
    case ErrorFormat::problem_link:
      reply.headers.add("Link", "</.well-known/idempotency>; rel=\"describedby\"");
      [[fallthrough]];
    case ErrorFormat::problem:
      reply.headers.add("Content-Type", "application/problem+json");
      reply.headers.add("Content-Language", "en");
      reply.body = problem_body(standing, refusal);
      break;
    case ErrorFormat::stripe:
      reply.headers.add("Content-Type", "application/json");
      reply.headers.add("Request-Id", context.request_id);
      if (standing.should_retry != ShouldRetry::unsaid)
        reply.headers.add("Stripe-Should-Retry", standing.should_retry == ShouldRetry::yes ? "true" : "false");
      if (!refusal.limited_by.empty()) reply.headers.add("Stripe-Rate-Limited-Reason", refusal.limited_by);
      reply.body = stripe_body(standing, refusal, refusal.key.empty() ? context.key : refusal.key);
      break;
  }
  // RFC 6750, 3.
  if (refusal.code == RefusalCode::token_invalid)
    reply.headers.add("WWW-Authenticate", "Bearer error=\"invalid_token\"");
  reply.headers.add("Cache-Control", "no-store");
  if (retry_after) reply.headers.add("Retry-After", fmt::format("{}", retry_after->count()));
  if (!context.key.empty() && key_was_good(refusal.code)) reply.headers.add("Idempotency-Key", context.key);
  return reply;
}

} // namespace oncekey
