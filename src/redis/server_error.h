// server_error: what a server's error reply means for the call that got it.
#pragma once

#include "redis/redis_url.h"

#include <oncekey/result.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace oncekey::redis {

enum class ErrorKind {
  moved,     // another node has the slot, for good
  ask,       // another node has this key already, while the slot is on its way there
  again,     // nothing was done and a little later it may be: a slot on its way, a failover, a server still loading
  no_script, // nothing was done; the script has to be loaded first
  refused,   // nothing was done, and an operator has to mend the server or its settings first
  unclear,   // an error in the middle of something
};

struct ServerError {
  ErrorKind kind = ErrorKind::unclear;
  Host host; // of moved and ask; an empty name stands for the one that was asked
  std::string text;
};

ServerError parse_error(std::string_view text);

// As a fault: `unavailable` where nothing was done, `timeout` where that is not known, `invalid` for a wrong login. The
// message has the server's words, and what to do about them where that is known.
Fault fault_of(const ServerError& error, const Host& from);

} // namespace oncekey::redis
