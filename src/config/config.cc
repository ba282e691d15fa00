#include "config/config.h"

#include "base/ascii.h"
#include "base/faults.h"
#include "base/masked_url.h"

#include <oncekey/headers.h>

#include <arpa/inet.h>

#include <algorithm>
#include <array>

namespace oncekey {
namespace {

// An IP address as IPv6 has it: IPv4 addresses are ::ffff:a.b.c.d.
using IpBytes = std::array<std::uint8_t, 16>;
constexpr IpBytes kEveryInterface{};
constexpr IpBytes kEveryInterfaceV4{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr IpBytes kLoopbackV6{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
constexpr IpBytes kLoopbackV4{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
constexpr std::size_t kMappedPrefix = 12;

bool is_v4(const IpBytes& ip) { return std::equal(ip.begin(), ip.begin() + kMappedPrefix, kEveryInterfaceV4.begin()); }

std::optional<IpBytes> ip_of(std::string_view host) {
  if (equal_ignoring_case(host, "localhost")) return kLoopbackV4;
  IpBytes ip = kEveryInterfaceV4;
  const std::string text(host);
  if (inet_pton(AF_INET, text.c_str(), ip.data() + kMappedPrefix) == 1) return ip;
  if (inet_pton(AF_INET6, text.c_str(), ip.data()) == 1) return ip;
  return std::nullopt;
}

// Whether a listener on `host` takes connections to `ip`. One on [::] takes those over IPv4 too.
bool takes(const IpBytes& host, const IpBytes& ip) {
  return host == ip || host == kEveryInterface || (host == kEveryInterfaceV4 && is_v4(ip));
}

char upper_letter(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - ('a' - 'A')) : c; }

bool same_letter(char a, char b, PathCase path_case) {
  return a == b || (path_case == PathCase::ignore && lower_letter(a) == lower_letter(b));
}

} // namespace

// Addresses and upstreams are read strictly, because a typing error here sends payments elsewhere.
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

bool reaches(std::string_view host, const Address& address) {
  if (equal_ignoring_case(host, address.host)) return true;
  const std::optional<IpBytes> target = ip_of(host);
  const std::optional<IpBytes> listener = ip_of(address.host);
  if (!target || !listener) return false;
  // A name may mean either loopback address, and a connection to every interface goes to one of them.
  const bool either =
      equal_ignoring_case(host, "localhost") || *target == kEveryInterface || *target == kEveryInterfaceV4;
  if (either) return takes(*listener, kLoopbackV4) || takes(*listener, kLoopbackV6);
  // Whether another address is one of this machine is not known here.
  return *listener == *target || (is_loopback({std::string(host), 0}) && takes(*listener, *target));
}

bool collide(const Address& one, const Address& other) {
  if (one.port == 0 || one.port != other.port) return false;
  const std::optional<IpBytes> ip = ip_of(one.host);
  const std::optional<IpBytes> other_ip = ip_of(other.host);
  if (!ip || !other_ip) return equal_ignoring_case(one.host, other.host);
  return takes(*ip, *other_ip) || takes(*other_ip, *ip);
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

// Greedy with one step back: only the last star seen ever needs to give way, so the time is bounded by the product of
// the lengths whatever the glob looks like.
bool glob_matches(std::string_view glob, std::string_view path, PathCase path_case) {
  std::size_t at_glob = 0;
  std::size_t at_path = 0;
  std::size_t star = std::string_view::npos;
  std::size_t star_path = 0;
  while (at_path < path.size()) {
    if (at_glob < glob.size() && glob[at_glob] == '*') {
      star = at_glob++;
      star_path = at_path;
    } else if (at_glob < glob.size() && same_letter(glob[at_glob], path[at_path], path_case)) {
      ++at_glob;
      ++at_path;
    } else if (star != std::string_view::npos) {
      at_glob = star + 1;
      at_path = ++star_path;
    } else {
      return false;
    }
  }
  while (at_glob < glob.size() && glob[at_glob] == '*') ++at_glob;
  return at_glob == glob.size();
}

const Url& upstream_of(const Config& config, const Route& route) {
  return route.upstream ? *route.upstream : config.upstream;
}

std::vector<Url> upstreams_of(const Config& config) {
  std::vector<Url> all;
  const auto add = [&](const Url& url) {
    const auto same = [&](const Url& other) { return other.origin() == url.origin(); };
    if (!url.host.empty() && std::none_of(all.begin(), all.end(), same)) all.push_back(url);
  };
  add(config.upstream);
  for (const Route& route : config.routes) add(upstream_of(config, route));
  return all;
}

bool glob_matches_folder(std::string_view glob, std::string_view path, PathCase path_case) {
  if (glob_matches(glob, path, path_case)) return true;
  return glob.ends_with("/*") && glob_matches(glob.substr(0, glob.size() - 2), path, path_case);
}

// A byte that no glob contains stands for "anything at all": only a star of the wide glob can take it, and what a star
// takes once it takes always.
bool glob_covers(std::string_view wide, std::string_view narrow) {
  std::string sample(narrow);
  std::replace(sample.begin(), sample.end(), '*', '\x01');
  if (!glob_matches_folder(wide, sample, PathCase::exact)) return false;
  // "/v1/*" has /v1 too. No path is shorter than "/", so that "/*" has no such folder.
  constexpr std::size_t kStarBytes = 2;
  if (!narrow.ends_with("/*") || narrow.size() == kStarBytes) return true;
  return glob_matches_folder(wide, std::string_view(sample).substr(0, sample.size() - kStarBytes), PathCase::exact);
}

bool glob_covers(std::string_view wide, PathCase wide_case, std::string_view narrow, PathCase narrow_case) {
  const auto covers = [&](char (*letter)(char)) {
    std::string wide_spelled(wide);
    std::string narrow_spelled(narrow);
    const auto spell = [&](std::string& glob) { std::transform(glob.begin(), glob.end(), glob.begin(), letter); };
    if (wide_case == PathCase::ignore) spell(wide_spelled);
    if (wide_case == PathCase::ignore || narrow_case == PathCase::ignore) spell(narrow_spelled);
    return glob_covers(wide_spelled, narrow_spelled);
  };
  // A route that ignores case has paths in either.
  return covers(lower_letter) && covers(upper_letter);
}

bool shadows(const Route& earlier, const Route& later) {
  const auto& methods = earlier.policy.methods;
  return glob_covers(earlier.path, earlier.policy.path_case, later.path, later.policy.path_case) &&
         std::all_of(later.policy.methods.begin(), later.policy.methods.end(), [&](const std::string& method) {
           return std::find(methods.begin(), methods.end(), method) != methods.end();
         });
}

} // namespace oncekey
