// door: who may talk to a listener that is not for clients.
#pragma once

#include <oncekey/headers.h>

namespace oncekey {

// What a request sends to be let in.
enum class Credential {
  none,
  right,
  wrong,
  doubled, // two Authorization fields: servers disagree on which of them counts
};
// With an empty token none is right.
Credential credential_of(const Headers& headers, std::string_view token);

// Whether the request names a loopback host. A browser sends the host it believes to talk to, and other names may have
// been pointed at this machine by an attacker's DNS.
bool names_this_machine(const Headers& headers);

// Why a request is not let in, and the status to say so with; nothing if it is. Where there is a token it must come as
// a bearer's; `name` is what people call it. Without one the listener is on loopback, and the request must name a
// loopback host.
struct TurnedAway {
  int status = 0;
  std::string why;
};
std::optional<TurnedAway> turned_away(const Headers& headers, std::string_view token, std::string_view name);

inline constexpr std::string_view kTwoCredentials = "the request has two Authorization fields; send one";
inline constexpr std::string_view kForeignHost = "without a token this listener answers to loopback host names only";
std::string token_wanted(std::string_view name);

} // namespace oncekey
