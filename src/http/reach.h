// reach: whether an address can be bound and a server be connected to, without sending a request.
#pragma once

#include <oncekey/result.h>
#include <oncekey/time.h>

#include <cstdint>
#include <string>

namespace oncekey {

// Binds and lets go again. A fault says why that is not possible.
Status try_to_bind(const std::string& host, std::uint16_t port);

// A server to connect to.
struct ReachedServer {
  std::string host;
  std::uint16_t port = 0;
  bool tls = false;
  std::string ca_file; // PEM; the system's certificates when empty
};

// Resolves the name, connects and, where it speaks TLS, does the handshake; then closes. Sends no byte of a request.
// The address that answered; a fault says what failed, and is there within about twice the time-out.
Result<std::string> try_to_connect(const ReachedServer& server, Millis timeout);

} // namespace oncekey
