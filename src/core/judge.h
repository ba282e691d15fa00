// judge: what an answer means to the sender of a request. One table of statuses for everything that sends: the client's
// calls, and deliveries (messages of webhooks and of the outbox, staged jobs of the HTTP sink).
//
// A call asks for something to be done, and a refusal is its answer. A delivery brings a message that the receiver must
// get: it goes on until the receiver takes it, says that it never will (410), or the budget ends, because a refusal
// usually is a mistake that the receiver's next deploy mends. docs/WEBHOOKS.md has the table.
#pragma once

#include <oncekey/headers.h>
#include <oncekey/time.h>

#include <optional>
#include <string>
#include <string_view>

namespace oncekey {

enum class Judgement { success, refusal, retry };

// Whose trouble a delivery's failure is, as far as its status tells.
enum class Suspect {
  message,  // the receiver has judged this message
  either,   // the receiver fails, or this message makes it fail: the next messages will tell
  receiver, // it says "not now"
};

// Every status is in one of these.
struct StatusMeaning {
  int first, last;
  Judgement call;
  bool may_have_done; // a call that got this answer may have had an effect all the same
  Judgement delivery; // `refusal`: a dead letter at once
  Suspect suspect;    // of a delivery that does not succeed
};
const StatusMeaning& meaning_of(int status);
inline bool is_success(int status) { return meaning_of(status).call == Judgement::success; } // of a call

struct Judged {
  Judgement judgement;
  std::string why;            // for a refusal or a retry: a few words
  bool may_have_done = false; // as in StatusMeaning
  bool in_progress = false;   // the server says so: the first request with the key is still running
  // The server says so: the key came with another request before. Nothing was done now, and that one may have been
  // done.
  bool another_request = false;
};

// A call's answer. The status alone does not tell: 409 means "still at work" to most servers and "another request had
// this key" to some, and Stripe keeps 500s. The body and a few headers tell them apart. Bodies of unknown form count
// for nothing, so that a plain 409 is tried again.
Judged judge_call(int status, std::string_view reason, const Headers& headers, std::string_view body);

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
