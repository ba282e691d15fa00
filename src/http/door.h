// door: who may talk to a listener that is not for clients.
#pragma once

#include <oncekey/headers.h>

#include <optional>
#include <string>
#include <string_view>

namespace oncekey {

// Why a request is not let in, and the status to say so with; nothing if it is. Where there is a token it must come as
// a bearer's; `name` is what people call it. Without one the listener is on loopback, and the request must name a
// loopback host: a browser sends the host it believes to talk to, and other names may have been pointed here by
// somebody's DNS.
struct TurnedAway {
  int status = 0;
  std::string why;
};
std::optional<TurnedAway> turned_away(const Headers& headers, std::string_view token, std::string_view name);

} // namespace oncekey
