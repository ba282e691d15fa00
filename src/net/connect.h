// connect: from a name to a connection that can be used, within one deadline.
#pragma once

#include "net/tls.h"
#include "net/transport.h"

#include <cstdint>
#include <memory>
#include <string>

namespace oncekey {

enum class ConnectFailure {
  none,
  no_such_name, // the name servers say so; another try is in vain
  unreachable,  // refused, no route, a name that cannot be resolved now, a handshake that failed
  timed_out,
  own_shortage, // of descriptors or memory; says nothing of the server
  distrusted,   // the certificate is not trusted or for another name; another try is in vain
};

struct Connected {
  std::unique_ptr<Transport> transport; // null if there is a failure; its deadline is the one given
  ConnectFailure failure = ConnectFailure::none;
  std::string reason;  // for people: what failed, with the name or address
  std::string address; // the one that was connected to
};

// Resolves `host` and tries its addresses in turn, each with a fair share of the time that is left; then TLS, unless
// `tls` is null. `host` is what the certificate must be for.
Task<Connected> connect(Loop& loop, std::string host, std::uint16_t port, TlsContext tls, MonotonicTime due);

} // namespace oncekey
