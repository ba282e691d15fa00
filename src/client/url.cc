#include "client/url.h"

#include <oncekey/headers.h>

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace oncekey {
namespace {

bool is_ipv6(const std::string& text) {
  std::array<std::uint8_t, 16> bytes{};
  return inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1;
}

bool is_name_or_ipv4(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
           c == '_';
  };
  return !text.empty() && text.size() <= 253 && text.front() != '.' && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), allowed);
}

std::optional<std::uint16_t> port_of(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc{} || end != text.data() + text.size() || port == 0) return std::nullopt;
  return port;
}

// Into host and port; false if it is neither "name:port" nor "[v6]:port".
bool split_authority(std::string_view authority, Url& url) {
  std::string_view port;
  const bool bracketed = authority.starts_with('[');
  const std::size_t host_end = bracketed ? authority.find(']') : authority.find(':');
  if (bracketed && host_end == std::string_view::npos) return false;
  url.host = std::string(authority.substr(bracketed ? 1 : 0, bracketed ? host_end - 1 : host_end));
  if (host_end != std::string_view::npos) port = authority.substr(host_end + (bracketed ? 1 : 0));
  if (bracketed ? !is_ipv6(url.host) : !is_name_or_ipv4(url.host)) return false;
  url.authority = bracketed ? fmt::format("[{}]", url.host) : url.host;
  if (port.empty()) return true;
  const auto number = port.starts_with(':') ? port_of(port.substr(1)) : std::nullopt;
  if (!number) return false;
  if (*number != url.port) url.authority += fmt::format(":{}", *number);
  url.port = *number;
  return true;
}

} // namespace

std::string Url::shown() const {
  return fmt::format("{}://{}{}", tls ? "https" : "http", authority, target.substr(0, target.find('?')));
}

Result<Url> parse_url(std::string_view text) {
  Url url;
  std::string_view rest = text;
  if (starts_with_ignoring_case(rest, "http://")) {
    rest.remove_prefix(7);
  } else if (starts_with_ignoring_case(rest, "https://")) {
    rest.remove_prefix(8);
    url.tls = true;
    url.port = 443;
  } else {
    return invalid("the URL begins with neither http:// nor https://");
  }
  const std::size_t end = rest.find_first_of("/?#");
  const std::string_view authority = rest.substr(0, end);
  url.target = end == std::string_view::npos ? "/" : std::string(rest.substr(end));
  if (url.target.front() == '?') url.target.insert(0, 1, '/');
  if (authority.find('@') != std::string_view::npos)
    return invalid("the URL may not hold a user or password; send credentials in a header");
  if (url.target.find('#') != std::string::npos) return invalid("the URL may not hold a fragment (#)");
  // Servers disagree on anything but visible ASCII in a request line: escaped, it has one meaning.
  if (std::any_of(url.target.begin(), url.target.end(), [](char c) { return c <= ' ' || c > '~'; }))
    return invalid("the URL holds a blank, a control character or one outside ASCII; write it with percent signs");
  if (!split_authority(authority, url)) return invalid("the host or the port in the URL is not one");
  return url;
}

} // namespace oncekey
