// SocketAddress: an IP address and a port.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace oncekey {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = sizeof(sockaddr_storage);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  std::uint16_t port() const;
  bool is_loopback() const;
  std::string ip() const;   // "127.0.0.1", "fe80::1%eth0"
  std::string text() const; // "127.0.0.1:80", "[::1]:80"
};

// Nothing for what is no IP address as it is usually written: "127.1" is none.
std::optional<SocketAddress> parse_ip(std::string_view ip, std::uint16_t port = 0);

} // namespace oncekey
