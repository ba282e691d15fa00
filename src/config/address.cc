// Addresses to listen on and the URL of the upstream: strict, because a typing error here sends payments elsewhere.
#include "base/masked_url.h"
#include "config/config.h"

#include <oncekey/headers.h>

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace oncekey {
namespace {

bool is_ip(int family, const std::string& text) {
  std::array<std::uint8_t, 16> bytes{};
  return inet_pton(family, text.c_str(), bytes.data()) == 1;
}

bool is_host_name(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
           c == '_';
  };
  return !text.empty() && text.size() <= 253 && text.front() != '.' && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), allowed);
}

std::optional<std::uint16_t> parse_port(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return port;
}

struct HostPort {
  std::string host;
  std::string_view port; // empty when none was written
  bool bracketed = false;
};

// Splits "host:port" and "[v6]:port". Nothing for an unclosed bracket, for text between bracket and colon, and for an
// IPv6 address without brackets, in which the last colon could mean either thing.
std::optional<HostPort> split_host_port(std::string_view text) {
  HostPort parts;
  std::string_view rest;
  if (!text.empty() && text.front() == '[') {
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    parts.host = text.substr(1, close - 1);
    parts.bracketed = true;
    rest = text.substr(close + 1);
  } else {
    const std::size_t colon = text.find(':');
    parts.host = text.substr(0, colon);
    rest = colon == std::string_view::npos ? std::string_view{} : text.substr(colon);
  }
  if (rest.empty()) return parts;
  if (rest.front() != ':' || rest.size() == 1 || rest.find(':', 1) != std::string_view::npos) return std::nullopt;
  parts.port = rest.substr(1);
  return parts;
}

} // namespace

Result<Address> parse_address(std::string_view text) {
  const auto refuse = [&](std::string_view why) {
    return invalid(fmt::format("\"{}\" is not an address to listen on: {}", text, why));
  };
  const auto parts = split_host_port(text);
  if (!parts) return refuse("write HOST:PORT, as in 127.0.0.1:8080 or [::1]:8080");
  if (parts->host.empty() || parts->host == "*")
    return refuse("name the address; 0.0.0.0 or [::] stands for every interface of the machine");
  if (parts->port.empty()) return refuse("the port is missing, as in 127.0.0.1:8080");
  const auto port = parse_port(parts->port);
  if (!port) return refuse("the port is a whole number from 0 to 65535");
  if (parts->bracketed) {
    if (!is_ip(AF_INET6, parts->host)) return refuse("what stands in brackets is not an IPv6 address");
    return Address{parts->host, *port};
  }
  if (equal_ignoring_case(parts->host, "localhost")) return Address{"127.0.0.1", *port};
  if (!is_ip(AF_INET, parts->host))
    return refuse("the host must be an IP address or localhost; a name could come to mean another interface");
  return Address{parts->host, *port};
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

Result<UpstreamUrl> parse_upstream(std::string_view text) {
  const auto refuse = [&](std::string_view why) {
    return invalid(fmt::format("\"{}\" is not an upstream: {}", masked_url(text), why));
  };
  UpstreamUrl url;
  std::string_view rest = text;
  if (starts_with_ignoring_case(rest, "http://")) {
    rest.remove_prefix(7);
  } else if (starts_with_ignoring_case(rest, "https://")) {
    rest.remove_prefix(8);
    url.scheme = UpstreamUrl::Scheme::https;
    url.port = 443;
  } else {
    return refuse("write http://HOST:PORT or https://HOST:PORT");
  }
  const std::size_t authority_end = rest.find_first_of("/?#");
  if (authority_end != std::string_view::npos) {
    if (rest.substr(authority_end) != "/")
      return refuse("it may not have a path or a query; requests are forwarded with their own");
    rest = rest.substr(0, authority_end);
  }
  if (rest.find('@') != std::string_view::npos)
    return refuse("it may not have a user or password; send credentials in a header of the request");

  const auto parts = split_host_port(rest);
  if (!parts || parts->host.empty()) return refuse("write http://HOST:PORT or https://HOST:PORT");
  if (parts->bracketed ? !is_ip(AF_INET6, parts->host) : !is_host_name(parts->host))
    return refuse("the host is neither a name nor an IP address");
  const std::uint16_t default_port = url.port;
  if (!parts->port.empty()) {
    const auto port = parse_port(parts->port);
    if (!port || *port == 0) return refuse("the port is a whole number from 1 to 65535");
    url.port = *port;
  }
  url.host = parts->host;
  for (char& c : url.host) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  url.authority = parts->bracketed ? fmt::format("[{}]", url.host) : url.host;
  if (url.port != default_port) url.authority += fmt::format(":{}", url.port);
  return url;
}

std::string to_string(const UpstreamUrl& url) {
  return fmt::format("{}://{}", url.scheme == UpstreamUrl::Scheme::https ? "https" : "http", url.authority);
}

Result<TargetUrl> parse_target_url(std::string_view text) {
  const std::size_t scheme = text.find("://");
  const std::size_t authority = scheme == std::string_view::npos ? 0 : scheme + 3;
  const std::size_t end = std::min(text.find_first_of("/?#", authority), text.size());
  const std::string_view target = text.substr(end);
  auto server = parse_upstream(text.substr(0, end));
  if (!server)
    return invalid(
        fmt::format("\"{}\" is not a URL: write http://HOST:PORT/PATH or https://HOST/PATH", masked_url(text)));
  for (const char c : target) {
    if (c <= ' ' || c >= '\x7f' || c == '#')
      return invalid(fmt::format("\"{}\" holds characters that no URL may have here", masked_url(text)));
  }
  std::string path(target);
  if (!path.starts_with('/')) path.insert(path.begin(), '/');
  return TargetUrl{std::move(server).value(), std::move(path)};
}

} // namespace oncekey
