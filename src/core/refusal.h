// Refusal: an answer the gateway gives by itself, as a value; replies.h turns it into bytes.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace oncekey {

// Stable: the spelling is part of the problem type URI and of the metric label `decision`.
enum class RefusalCode {
  key_missing,          // 400: the route requires a key
  key_invalid,          // 400: empty, too long, or not of the policy's syntax
  key_repeated,         // 400: more than one key header
  key_in_connection,    // 400: Connection names a header of key, scope or fingerprint and would strip it
  upgrade_with_key,     // 400: a WebSocket has no answer that could be kept
  path_ambiguous,       // 400: servers read the path in different ways, and one of them is protected
  principal_missing,    // 400: no account to keep the key under
  token_invalid,        // 401: the bearer token of the account is not valid
  jwks_unavailable,     // 503: the keys that tokens are verified with have not been fetched
  not_reauthorized,     // 503: the upstream did not say whether the caller may still see the answer
  mismatch,             // policy: the key was used for another request
  in_progress,          // policy: the first request is still at work
  indeterminate,        // 409: the outcome is unknown and retrying will not settle it
  answer_not_kept,      // 409: executed, but the answer was not kept
  request_too_large,    // 413
  store_unavailable,    // 503: nothing was executed
  record_not_written,   // 503: executed, but the answer could not be made durable; the key stays claimed
  upstream_unreachable, // 503: nothing was sent
  upstream_unknown,     // 502: sent, but no complete answer came back
  upstream_timeout,     // 504: sent, but no complete answer came back in time
  answer_unusable,      // 502: answered, but the answer is malformed or over a limit and cannot be passed on
  overloaded,           // 503: a limit of the gateway was reached before anything was executed
  draining,             // 503: shutting down; nothing was executed
  rate_limited,         // 429: the account sends more than its rate
  too_many_in_flight,   // 429: the account has as many requests under way as it may
  over_share,           // 429: this address or account holds its share of something bounded
  store_full,           // 503: there is no room for a new record
  abandoned,            // 409: a status was asked for, and the operation's owner is gone
  operation_unknown,    // 404: no operation of the asker's account under this status URL
  // Used by the library alone:
  request_invalid,     // 400: a text of the request is no UTF-8
  not_finished,        // 503: the operation threw, or another version of the program must go on with it
  application_mistake, // 500: not declared, or a mistake in its code; trying again does not help
};
std::string_view to_string(RefusalCode code);

// The last of the gateway's own.
inline constexpr RefusalCode kLastGatewayRefusal = RefusalCode::operation_unknown;

// What the gateway knows of the operation behind the key when it refuses a request. The refusal's text must not say
// that nothing was executed where something may have been.
enum class Fate {
  by_code,
  still_running,  // the first request is at work
  owner_gone,     // in progress by its lease, but its owner has stopped: a retry after the lease finds out
  maybe_executed, // an earlier try may have been executed, and a retry finds out
  not_told,       // the same, and the upstream did not answer the probe for it
  held,           // it may have been executed, and only an operator can tell
  released,       // the API's status says that the request may be sent again
};

struct Refusal {
  RefusalCode code;
  // Completes the standing text of the code where there is more to say ("the key has 300 characters, 255 are allowed").
  std::string detail{};
  std::optional<std::chrono::seconds> retry_after{};
  std::string key{}; // echoed where the format names it
  // Which limit it was, in Stripe's words ("global-rate"); empty for refusals that are not about a limit.
  std::string_view limited_by{};
  Fate fate = Fate::by_code;
};

} // namespace oncekey
