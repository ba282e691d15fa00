#include "redis/redis_url.h"

#include "base/durations.h"
#include "base/masked_url.h"
#include "base/url.h"

#include <fmt/format.h>

#include <algorithm>

namespace oncekey::redis {
namespace {

constexpr std::string_view kSettings = "call_timeout, prefix, wait, password_file, tls_ca, tls_cert and tls_key";
// More would make every key longer than its record needs.
constexpr std::size_t kPrefixBytesMax = 64;
constexpr int kReplicasMax = 100;
constexpr int kDatabaseMax = 1'000'000;

// Hash tags and SCAN patterns are made around it, so it must not hold their characters.
bool is_prefix(std::string_view text) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/";
  return !text.empty() && text.size() <= kPrefixBytesMax && text.find_first_not_of(kAllowed) == std::string_view::npos;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<RedisUrl> parse() {
    const Result<UrlParts> parts = split_url(text_);
    if (!parts) return refuse(parts.fault().message);
    if (Status status = scheme(parts->scheme); !status) return std::move(status).fault();
    if (Status status = login(parts->userinfo.value_or("")); !status) return std::move(status).fault();
    if (Status status = hosts(parts->hosts); !status) {
      // With an @ behind it, the part at fault may belong to a password that holds a slash.
      if (parts->target.find('@') == std::string_view::npos) return std::move(status).fault();
      return refuse("expected / and ? in the user and the password percent-encoded, as %2F and %3F");
    }
    const std::size_t question = std::min(parts->target.find('?'), parts->target.size());
    if (Status status = database(parts->target.substr(0, question)); !status) return std::move(status).fault();
    if (Status status = settings(parts->target.substr(std::min(question + 1, parts->target.size()))); !status)
      return std::move(status).fault();
    return std::move(url_);
  }

 private:
  Fault refuse(std::string_view why) const {
    return invalid(fmt::format("\"{}\" is not a usable Redis URL: {}", masked_url(text_), why));
  }

  Status scheme(std::string_view name) {
    if (name != "redis" && name != "rediss" && name != "redis+cluster" && name != "rediss+cluster")
      return refuse("expected redis://, rediss://, redis+cluster:// or rediss+cluster://");
    url_.tls = name.starts_with("rediss");
    url_.cluster = name.ends_with("+cluster");
    return ok_status();
  }

  Status login(std::string_view text) {
    const std::size_t colon = std::min(text.find(':'), text.size());
    const auto user = percent_decoded(text.substr(0, colon));
    const auto password = percent_decoded(colon < text.size() ? text.substr(colon + 1) : std::string_view{});
    if (!user || !password) return refuse("user and password: expected two hex digits after a %; a % itself is %25");
    url_.user = *user;
    url_.password = *password;
    return ok_status();
  }

  Status hosts(std::string_view text) {
    for (std::size_t comma = 0; comma != std::string_view::npos; text = text.substr(comma + 1)) {
      comma = text.find(',');
      Result<HostPort> place = parse_host_port(text.substr(0, comma));
      if (!place) return refuse(place.fault().message);
      if (place->port == 0) return refuse("port: expected a whole number from 1 to 65535, got \"0\"");
      url_.hosts.push_back({std::move(place->host), place->port.value_or(kDefaultPort)});
    }
    if (url_.hosts.size() > 1 && !url_.cluster)
      return refuse("several hosts are for a cluster; write redis+cluster://");
    return ok_status();
  }

  Status database(std::string_view path) {
    const std::string_view text = path.substr(std::min<std::size_t>(1, path.size()));
    if (text.empty()) return ok_status();
    if (url_.cluster) return refuse("a cluster has no numbered databases; leave out what follows the /");
    const auto number = whole_number<int>(text, 0, kDatabaseMax);
    if (!number) return refuse(fmt::format("database: expected a number, got \"{}\"", text));
    url_.database = *number;
    return ok_status();
  }

  Status settings(std::string_view query) {
    while (!query.empty()) {
      const std::size_t end = std::min(query.find('&'), query.size());
      const std::string_view pair = query.substr(0, end);
      query.remove_prefix(std::min(end + 1, query.size()));
      const std::size_t equals = pair.find('=');
      if (equals == std::string_view::npos) return refuse("settings: expected name=value");
      const auto value = percent_decoded(pair.substr(equals + 1));
      if (!value)
        return refuse(fmt::format("{}: expected two hex digits after a %; a % itself is %25", pair.substr(0, equals)));
      if (Status status = setting(pair.substr(0, equals), *value); !status) return status;
    }
    if (!url_.password.empty() && !url_.password_file.empty())
      return refuse("it has both a password and a password_file");
    if (url_.tls_cert.empty() != url_.tls_key.empty()) return refuse("tls_cert and tls_key belong together");
    return ok_status();
  }

  Status setting(std::string_view name, const std::string& value) {
    if (name == "call_timeout") {
      const Result<Millis> time = parse_duration(value);
      if (!time) return refuse("call_timeout: " + time.fault().message);
      if (time->count() == 0) return refuse("call_timeout must be greater than 0");
      url_.call_timeout = *time;
    } else if (name == "prefix") {
      if (!is_prefix(value))
        return refuse(fmt::format("the prefix may have up to {} letters, digits and - _ . : /", kPrefixBytesMax));
      url_.prefix = value;
    } else if (name == "wait") {
      const auto number = whole_number<int>(value, 0, kReplicasMax);
      if (!number) return refuse(fmt::format("wait is a number of replicas from 0 to {}", kReplicasMax));
      url_.wait = *number;
    } else if (name == "password_file") {
      url_.password_file = value;
    } else if (name == "tls_ca" || name == "tls_cert" || name == "tls_key") {
      if (!url_.tls) return refuse(fmt::format("{} is for TLS; write rediss in place of redis", name));
      (name == "tls_ca" ? url_.tls_ca : name == "tls_cert" ? url_.tls_cert : url_.tls_key) = value;
    } else {
      return refuse(fmt::format("there is no setting \"{}\"; there are {}", name, kSettings));
    }
    return ok_status();
  }

  const std::string_view text_;
  RedisUrl url_;
};

} // namespace

std::string to_string(const Host& host) { return host_and_port(host.name, host.port); }

Result<RedisUrl> parse_url(std::string_view text) { return Parser(text).parse(); }

std::optional<Host> parse_endpoint(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto port = whole_number<std::uint16_t>(text.substr(colon + 1), 1, 65535);
  if (!port) return std::nullopt;
  std::string_view name = text.substr(0, colon);
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  return Host{std::string(name), *port};
}

} // namespace oncekey::redis
