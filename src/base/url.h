// url: the one parser for every URL and every HOST:PORT that a user writes.
//
// Strict, because a typing error in one of them sends payments elsewhere: what two programs could read in two ways is
// refused. A URL is visible ASCII without a fragment; everything else is percent-encoded. A fault says what was
// expected, and never holds a user, a password or a query.
#pragma once

#include <oncekey/result.h>

#include <cstdint>

namespace oncekey {

// SCHEME://[USERINFO@]HOSTS[TARGET], as written: views into the text.
struct UrlParts {
  std::string_view scheme;
  std::optional<std::string_view> userinfo; // up to the last @ before the target
  std::string_view hosts;                   // one HOST[:PORT], or what the scheme has in its place
  std::string_view target;                  // path and query
};
Result<UrlParts> split_url(std::string_view text);

struct HostPort {
  std::string host;                  // lower case; an IPv6 address without its brackets
  bool ipv6 = false;                 // written in brackets
  std::optional<std::uint16_t> port; // nothing if none is written
};
// "HOST", "HOST:PORT", "[IPV6]" or "[IPV6]:PORT". The host is a name or an IP address, the port 0 to 65535.
Result<HostPort> parse_host_port(std::string_view text);
// The same back: with brackets around an IPv6 address.
std::string host_and_port(std::string_view host, std::uint16_t port);

// Of a hexadecimal digit; -1 for any other character.
inline int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}
// Nothing if a % is not followed by two hexadecimal digits.
std::optional<std::string> percent_decoded(std::string_view text);
// Encodes everything but the unreserved characters of RFC 3986: letters, digits, - . _ ~
std::string percent_encoded(std::string_view text);

// An http:// or https:// URL.
struct Url {
  bool tls = false;
  std::string host; // lower case; an IPv6 address without its brackets
  std::uint16_t port = 80;
  std::string authority;    // for the Host header: the port only where it is not the scheme's own
  std::string target = "/"; // path and query, as written

  // "https://HOST:PORT"
  std::string origin() const;
  // Without the query, which may hold secrets: for messages and the journal.
  std::string shown() const;
};
Result<Url> parse_url(std::string_view text);

} // namespace oncekey
