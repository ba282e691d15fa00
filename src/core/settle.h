// settle: what becomes of the key after the upstream has answered, or has not.
//
// The third of the three decisions.
#pragma once

#include "core/policy.h"

#include <oncekey/headers.h>

#include <string_view>
#include <variant>

namespace oncekey {

// No byte of the request left: the connection could not be made.
struct NotSent {};
// A complete final response came back.
struct Answered {
  int status;
  const Headers& headers;
};
// A byte may have left and no complete response came back: time-out, reset, short body.
struct Unknown {};

// A response came that cannot be passed on or kept: malformed, ambiguous, or over a limit. Sending the request again
// would get the same.
struct Unusable {
  int status;             // 0: it has no valid status line
  const Headers& headers; // none where the head is what is wrong
};

using Outcome = std::variant<NotSent, Answered, Unknown, Unusable>;

enum class Settlement {
  keep,     // store the response and replay it
  executed, // store that there was a response of this status; retries are told that it is not kept
  release,  // free the key: the next request is a first one again
  hold,     // make the key indeterminate at once
  abandon,  // leave the claim to its lease: when that is over, the key is abandoned
};
std::string_view to_string(Settlement settlement);

// The response header by which an upstream says that it did not execute: `Oncekey-Outcome: not-executed`. Never
// forwarded to the client.
inline constexpr std::string_view kOutcomeHeader = "Oncekey-Outcome";

Settlement settle(const Policy& policy, const Outcome& outcome);

} // namespace oncekey
