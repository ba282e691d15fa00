#include "net/socket_address.h"

#include <fmt/format.h>

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <array>
#include <cstring>

namespace oncekey {
namespace {

const sockaddr_in& v4(const SocketAddress& address) { return reinterpret_cast<const sockaddr_in&>(address.storage); }
const sockaddr_in6& v6(const SocketAddress& address) { return reinterpret_cast<const sockaddr_in6&>(address.storage); }

} // namespace

std::uint16_t SocketAddress::port() const {
  return ntohs(family() == AF_INET6 ? v6(*this).sin6_port : v4(*this).sin_port);
}

bool SocketAddress::is_loopback() const {
  if (family() == AF_INET6) return std::memcmp(&v6(*this).sin6_addr, &in6addr_loopback, sizeof in6addr_loopback) == 0;
  return (ntohl(v4(*this).sin_addr.s_addr) >> 24) == 127;
}

std::string SocketAddress::ip() const {
  std::array<char, NI_MAXHOST> text{};
  if (::getnameinfo(get(), length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return text.data();
}

std::string SocketAddress::text() const {
  return family() == AF_INET6 ? fmt::format("[{}]:{}", ip(), port()) : fmt::format("{}:{}", ip(), port());
}

std::optional<SocketAddress> parse_ip(std::string_view ip, std::uint16_t port) {
  SocketAddress address;
  const std::string text(ip.substr(0, ip.find('%')));
  auto& four = reinterpret_cast<sockaddr_in&>(address.storage);
  auto& six = reinterpret_cast<sockaddr_in6&>(address.storage);
  if (text.size() == ip.size() && ::inet_pton(AF_INET, text.c_str(), &four.sin_addr) == 1) {
    four.sin_family = AF_INET;
    four.sin_port = htons(port);
    address.length = sizeof four;
    return address;
  }
  if (::inet_pton(AF_INET6, text.c_str(), &six.sin6_addr) != 1) return std::nullopt;
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(port);
  address.length = sizeof six;
  if (text.size() < ip.size()) {
    six.sin6_scope_id = ::if_nametoindex(std::string(ip.substr(text.size() + 1)).c_str());
    if (six.sin6_scope_id == 0) return std::nullopt;
  }
  return address;
}

} // namespace oncekey
