// redis_url: which servers, with which login, and how to use them.
//
//   redis://[user[:password]@]host[:port][/database][?settings]
//   redis+cluster://[user[:password]@]host:port,host:port,.../[?settings]
//   rediss:// and rediss+cluster:// are the same over TLS, with the server's certificate verified
//
// Settings: call_timeout=2s, prefix=oncekey (of every key), wait=N (replicas that must have a write before it counts),
// password_file=PATH, and with TLS tls_ca=PATH, tls_cert=PATH, tls_key=PATH. User, password and values may be
// percent-encoded.
#pragma once

#include <oncekey/result.h>
#include <oncekey/time.h>

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey::redis {

// Nothing for a text that is anything else.
template <class Number>
std::optional<Number> whole_number(std::string_view text, Number least, Number most) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < least || number > most) return std::nullopt;
  return number;
}

inline constexpr std::uint16_t kDefaultPort = 6379;

struct Host {
  std::string name;
  std::uint16_t port = kDefaultPort;
  friend auto operator<=>(const Host&, const Host&) = default;
};
// "host:port", with brackets around an IPv6 address.
std::string to_string(const Host& host);

struct RedisUrl {
  bool cluster = false;
  bool tls = false;
  std::vector<Host> hosts; // one, or for a cluster some of its nodes
  std::string user;
  std::string password;
  int database = 0;
  std::optional<Millis> call_timeout;
  std::string prefix = "oncekey";
  int wait = 0;
  std::string password_file;
  std::string tls_ca;
  std::string tls_cert;
  std::string tls_key;
};

// A fault says what is wrong, without the password.
Result<RedisUrl> parse_url(std::string_view text);

// "host:port" and "[v6]:port", as in MOVED and ASK; nothing for anything else. The host may be empty.
std::optional<Host> parse_endpoint(std::string_view text);

} // namespace oncekey::redis
