// judge: is an answer final?
//
// The statuses alone do not say: 409 means "still at work" to most servers and "another request had this key" to some,
// and Stripe keeps 500s. The body and a few headers tell them apart. Bodies of unknown form count for nothing, so that
// a plain 409 is tried again.
#pragma once

#include <oncekey/client.h>

#include <optional>
#include <string>

namespace oncekey {

enum class Judgement { success, refusal, retry };

struct Judged {
  Judgement judgement;
  std::string why;            // for a refusal or a retry: a few words
  bool may_have_done = false; // a try that got this answer may have had an effect all the same
  bool in_progress = false;   // the server says so: the first request with the key is still running
};

Judged judge(const ClientResponse& response);

// 2xx, or 303.
bool is_success(int status);

// Refusals of the caller, not of the operation: 401, 403, 407. Servers give them before they look at the key.
bool is_about_the_caller(int status);

// The server says that this is the answer of an earlier try.
bool is_replay(const Headers& headers);

// How long the server wants to be left alone, by `Retry-After` in seconds or as a date; nothing if it does not say, or
// says something else. Dates are compared with the server's own `Date` where there is one: its clock may not be ours.
std::optional<Millis> retry_after(const Headers& headers, Time wall_clock);

// The three forms of RFC 9110, 5.6.7.
std::optional<Time> parse_http_date(std::string_view text, Time wall_clock);

} // namespace oncekey
