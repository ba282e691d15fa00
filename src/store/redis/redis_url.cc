#include "store/redis/redis_url.h"

#include "base/durations.h"
#include "base/masked_url.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace oncekey::redis {
namespace {

constexpr std::string_view kSettings = "call_timeout, prefix, wait, password_file, tls_ca, tls_cert and tls_key";
// More would make every key longer than its record needs.
constexpr std::size_t kPrefixBytesMax = 64;
constexpr int kReplicasMax = 100;
constexpr int kDatabaseMax = 1'000'000;

template <class Number>
std::optional<Number> whole_number(std::string_view text, Number least, Number most) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < least || number > most) return std::nullopt;
  return number;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = hex_digit(text[i + 1]);
    const int low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    out.push_back(static_cast<char>(high * 16 + low));
    i += 2;
  }
  return out;
}

// Hash tags and SCAN patterns are made around it, so it must not hold their characters.
bool is_prefix(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.' || c == ':' || c == '/';
  };
  return !text.empty() && text.size() <= kPrefixBytesMax && std::all_of(text.begin(), text.end(), allowed);
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Url> parse() {
    std::string_view rest = text_;
    if (Status status = scheme(rest); !status) return std::move(status).fault();
    const std::size_t question = std::min(rest.find('?'), rest.size());
    std::string_view address = rest.substr(0, question);
    const std::size_t at = address.rfind('@');
    if (at != std::string_view::npos) {
      if (Status status = login(address.substr(0, at)); !status) return std::move(status).fault();
      address.remove_prefix(at + 1);
    }
    const std::size_t slash = std::min(address.find('/'), address.size());
    if (Status status = hosts(address.substr(0, slash)); !status) return std::move(status).fault();
    if (slash < address.size()) {
      if (Status status = database(address.substr(slash + 1)); !status) return std::move(status).fault();
    }
    if (question < rest.size()) {
      if (Status status = settings(rest.substr(question + 1)); !status) return std::move(status).fault();
    }
    return std::move(url_);
  }

 private:
  Fault refuse(std::string_view why) const {
    return invalid(fmt::format("\"{}\" is not a usable Redis URL: {}", masked_url(text_), why));
  }

  Status scheme(std::string_view& rest) {
    const std::size_t end = rest.find("://");
    const std::string_view name = rest.substr(0, end);
    if (end == std::string_view::npos ||
        (name != "redis" && name != "rediss" && name != "redis+cluster" && name != "rediss+cluster")) {
      return refuse("it begins with redis://, rediss://, redis+cluster:// or rediss+cluster://");
    }
    url_.tls = name.starts_with("rediss");
    url_.cluster = name.ends_with("+cluster");
    rest.remove_prefix(end + 3);
    return ok_status();
  }

  Status login(std::string_view text) {
    const std::size_t colon = std::min(text.find(':'), text.size());
    const auto user = percent_decoded(text.substr(0, colon));
    const auto password = percent_decoded(colon < text.size() ? text.substr(colon + 1) : std::string_view{});
    if (!user || !password) return refuse("after a % in the login two hex digits must follow; a % itself is %25");
    url_.user = *user;
    url_.password = *password;
    return ok_status();
  }

  Status hosts(std::string_view text) {
    while (true) {
      const std::size_t comma = std::min(text.find(','), text.size());
      if (Status status = host(text.substr(0, comma)); !status) return status;
      if (comma == text.size()) break;
      text.remove_prefix(comma + 1);
    }
    if (url_.hosts.size() > 1 && !url_.cluster) {
      return refuse("several hosts are for a cluster; write redis+cluster://");
    }
    return ok_status();
  }

  Status host(std::string_view text) {
    std::string_view name = text;
    std::string_view port;
    bool has_port = false;
    if (text.starts_with('[')) {
      const std::size_t close = text.find(']');
      if (close == std::string_view::npos) return refuse("a [ of an IPv6 address has no ]");
      name = text.substr(1, close - 1);
      const std::string_view behind = text.substr(close + 1);
      if (!behind.empty() && behind.front() != ':')
        return refuse("behind the ] of an address comes a colon and a port");
      has_port = !behind.empty();
      if (has_port) port = behind.substr(1);
    } else if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
      name = text.substr(0, colon);
      port = text.substr(colon + 1);
      has_port = true;
    }
    if (name.empty()) return refuse("a host is missing");
    Host host{std::string(name), kDefaultPort};
    if (has_port) {
      const auto number = whole_number<std::uint16_t>(port, 1, 65535);
      if (!number) return refuse(fmt::format("\"{}\" is not a port, a whole number from 1 to 65535", port));
      host.port = *number;
    }
    url_.hosts.push_back(std::move(host));
    return ok_status();
  }

  Status database(std::string_view text) {
    if (text.empty()) return ok_status();
    if (url_.cluster) return refuse("a cluster has no numbered databases; leave out what follows the /");
    const auto number = whole_number<int>(text, 0, kDatabaseMax);
    if (!number) return refuse(fmt::format("\"{}\" is not the number of a database", text));
    url_.database = *number;
    return ok_status();
  }

  Status settings(std::string_view query) {
    while (!query.empty()) {
      const std::size_t end = std::min(query.find('&'), query.size());
      const std::string_view pair = query.substr(0, end);
      query.remove_prefix(std::min(end + 1, query.size()));
      const std::size_t equals = pair.find('=');
      if (equals == std::string_view::npos) return refuse("a setting is written name=value");
      const auto value = percent_decoded(pair.substr(equals + 1));
      if (!value) return refuse("after a % in a setting two hex digits must follow; a % itself is %25");
      if (Status status = setting(pair.substr(0, equals), *value); !status) return status;
    }
    if (!url_.password.empty() && !url_.password_file.empty()) {
      return refuse("it has both a password and a password_file");
    }
    if (url_.tls_cert.empty() != url_.tls_key.empty()) return refuse("tls_cert and tls_key belong together");
    return ok_status();
  }

  Status setting(std::string_view name, const std::string& value) {
    if (name == "call_timeout") {
      const Result<Millis> time = parse_duration(value);
      if (!time) return refuse("call_timeout: " + time.fault().message);
      if (time->count() == 0) return refuse("call_timeout must be greater than 0");
      url_.call_timeout = *time;
      return ok_status();
    }
    if (name == "prefix") {
      if (!is_prefix(value)) {
        return refuse(fmt::format("the prefix may have up to {} letters, digits and - _ . : /", kPrefixBytesMax));
      }
      url_.prefix = value;
      return ok_status();
    }
    if (name == "wait") {
      const auto number = whole_number<int>(value, 0, kReplicasMax);
      if (!number) return refuse(fmt::format("wait is a number of replicas from 0 to {}", kReplicasMax));
      url_.wait = *number;
      return ok_status();
    }
    if (name == "password_file") {
      url_.password_file = value;
      return ok_status();
    }
    if (name == "tls_ca" || name == "tls_cert" || name == "tls_key") {
      if (!url_.tls) return refuse(fmt::format("{} is for TLS; write rediss in place of redis", name));
      (name == "tls_ca" ? url_.tls_ca : name == "tls_cert" ? url_.tls_cert : url_.tls_key) = value;
      return ok_status();
    }
    return refuse(fmt::format("there is no setting \"{}\"; there are {}", name, kSettings));
  }

  const std::string_view text_;
  Url url_;
};

} // namespace

std::string to_string(const Host& host) {
  const bool v6 = host.name.find(':') != std::string::npos;
  return fmt::format(fmt::runtime(v6 ? "[{}]:{}" : "{}:{}"), host.name, host.port);
}

Result<Url> parse_url(std::string_view text) { return Parser(text).parse(); }

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
