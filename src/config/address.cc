// Addresses to listen on and the URL of the upstream: strict, because a typing error here sends payments elsewhere.
#include "base/faults.h"
#include "base/masked_url.h"
#include "config/config.h"

#include <oncekey/headers.h>

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace oncekey {

Result<Address> parse_address(std::string_view text) {
  const auto refuse = [&](std::string_view why) {
    return invalid("\"{}\" is not an address to listen on: {}", text, why);
  };
  if (text.empty() || text.rfind(':') == 0 || text.starts_with("*:"))
    return refuse("name the address; 0.0.0.0 or [::] stands for every interface of the machine");
  auto place = parse_host_port(text);
  if (!place) return refuse(place.fault().message);
  if (!place->port) return refuse("the port is missing, as in 127.0.0.1:8080");
  Address address{std::move(place->host), *place->port};
  if (address.host == "localhost") address.host = "127.0.0.1";
  std::array<std::uint8_t, 4> bytes{};
  if (!place->ipv6 && inet_pton(AF_INET, address.host.c_str(), bytes.data()) != 1)
    return refuse("the host must be an IP address or localhost; a name could come to mean another interface");
  return address;
}

namespace {
bool is_any_interface(std::string_view host) { return host == "0.0.0.0" || host == "::"; }
} // namespace

bool reaches(std::string_view host, const Address& address) {
  const Address target{std::string(host), 0};
  if (equal_ignoring_case(host, address.host)) return true;
  if (is_loopback(target) && (is_loopback(address) || is_any_interface(address.host))) return true;
  return is_any_interface(host) && (is_loopback(address) || is_any_interface(address.host));
}

bool is_loopback(const Address& address) {
  std::array<std::uint8_t, 16> bytes{};
  if (inet_pton(AF_INET, address.host.c_str(), bytes.data()) == 1) return bytes[0] == 127;
  if (inet_pton(AF_INET6, address.host.c_str(), bytes.data()) != 1)
    return equal_ignoring_case(address.host, "localhost");
  // ::ffff:127.x.y.z is the IPv4 loopback as an IPv6 address.
  static constexpr std::array<std::uint8_t, 13> kMappedLoopback{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127};
  if (std::equal(kMappedLoopback.begin(), kMappedLoopback.end(), bytes.begin())) return true;
  return std::all_of(bytes.begin(), bytes.end() - 1, [](std::uint8_t byte) { return byte == 0; }) && bytes[15] == 1;
}

Result<Url> parse_upstream(std::string_view text) {
  auto url = parse_url(text);
  if (url && url->target != "/") url = invalid("expected no path and no query: requests are forwarded with their own");
  if (!url) return invalid("\"{}\" is not an upstream: {}", masked_url(text), url.fault().message);
  return url;
}

} // namespace oncekey
