#include "base/url.h"

#include <oncekey/headers.h>

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace oncekey {
namespace {

bool is_letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

bool is_ipv6(const std::string& text) {
  std::array<std::uint8_t, 16> bytes{};
  return inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1;
}

bool is_name_or_ipv4(std::string_view text) {
  return !text.empty() && text.size() <= 253 && text.front() != '.' && text.front() != '-' &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return is_letter_or_digit(c) || c == '-' || c == '.' || c == '_'; });
}

Fault no_credentials() { return invalid("expected no user and no password: send credentials in a header"); }

} // namespace

Result<UrlParts> split_url(std::string_view text) {
  if (std::any_of(text.begin(), text.end(), [](char c) { return c <= ' ' || c > '~'; }))
    return invalid("expected visible ASCII characters only: write others percent-encoded, a blank as %20");
  if (text.find('#') != std::string_view::npos) return invalid("expected no fragment: write a # as %23");
  const std::size_t colon = text.find("://");
  if (colon == std::string_view::npos) return invalid("expected SCHEME://HOST");
  UrlParts parts;
  parts.scheme = text.substr(0, colon);
  text.remove_prefix(colon + 3);
  const std::size_t end = std::min(text.find_first_of("/?"), text.size());
  parts.hosts = text.substr(0, end);
  parts.target = text.substr(end);
  if (const std::size_t at = parts.hosts.rfind('@'); at != std::string_view::npos) {
    parts.userinfo = parts.hosts.substr(0, at);
    parts.hosts.remove_prefix(at + 1);
  }
  return parts;
}

Result<HostPort> parse_host_port(std::string_view text) {
  HostPort place;
  place.ipv6 = text.starts_with('[');
  // An IPv6 address without brackets has several colons, of which the last could mean either thing.
  const std::size_t close = place.ipv6 ? text.find(']') : 0;
  const std::size_t colon = std::min(text.find(':', close), text.size());
  if (close == std::string_view::npos || (place.ipv6 && colon != close + 1) || colon + 1 == text.size() ||
      text.find(':', colon + 1) != std::string_view::npos || colon == 0)
    return invalid(fmt::format("expected HOST:PORT or [IPV6]:PORT, got \"{}\"", text));
  place.host = text.substr(place.ipv6 ? 1 : 0, place.ipv6 ? close - 1 : colon);
  if (place.ipv6 ? !is_ipv6(place.host) : !is_name_or_ipv4(place.host))
    return invalid(fmt::format("host: expected a name, an IPv4 address or an IPv6 address in brackets, got \"{}\"",
                               text.substr(0, colon)));
  for (char& c : place.host) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  if (colon == text.size()) return place;
  const std::string_view digits = text.substr(colon + 1);
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc{} || end != digits.data() + digits.size())
    return invalid(fmt::format("port: expected a whole number up to 65535, got \"{}\"", digits));
  place.port = port;
  return place;
}

std::string host_and_port(std::string_view host, std::uint16_t port) {
  if (host.find(':') != std::string_view::npos) return fmt::format("[{}]:{}", host, port);
  return fmt::format("{}:{}", host, port);
}

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    const int high = i + 2 < text.size() ? hex_value(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? hex_value(text[i + 2]) : -1;
    if (high < 0 || low < 0) return std::nullopt;
    out.push_back(static_cast<char>(high * 16 + low));
    i += 2;
  }
  return out;
}

std::string percent_encoded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (is_letter_or_digit(c) || c == '-' || c == '.' || c == '_' || c == '~') {
      out.push_back(c);
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::string Url::origin() const { return fmt::format("{}://{}", tls ? "https" : "http", authority); }

std::string Url::shown() const { return origin() + target.substr(0, target.find('?')); }

Result<Url> parse_url(std::string_view text) {
  Url url;
  url.tls = starts_with_ignoring_case(text, "https://");
  if (!url.tls && !starts_with_ignoring_case(text, "http://"))
    return invalid("expected a URL that begins with http:// or https://");
  const auto parts = split_url(text);
  if (!parts) return parts.fault();
  if (parts->userinfo) return no_credentials();
  auto place = parse_host_port(parts->hosts);
  if (!place) {
    // With an @ behind it, the part at fault may belong to a password that holds a slash.
    return parts->target.find('@') == std::string_view::npos ? std::move(place).fault() : no_credentials();
  }
  const std::uint16_t usual = url.tls ? 443 : 80;
  url.port = place->port.value_or(usual);
  if (url.port == 0) return invalid("port: expected a whole number from 1 to 65535, got \"0\"");
  url.host = std::move(place->host);
  url.authority = place->ipv6 ? fmt::format("[{}]", url.host) : url.host;
  if (url.port != usual) url.authority += fmt::format(":{}", url.port);
  url.target = parts->target;
  if (!url.target.starts_with('/')) url.target.insert(0, 1, '/');
  return url;
}

} // namespace oncekey
