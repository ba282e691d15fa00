#include "store/postgres/postgres_url.h"

#include "base/certificate.h"
#include "base/durations.h"

#include <fmt/ranges.h>
#include <libpq-fe.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <memory>

namespace oncekey::postgres {
namespace {

// Lost peers are noticed within half a minute even where nothing is sent; libpq's defaults are two hours.
constexpr std::pair<const char*, const char*> kKeepalive[] = {
    {"keepalives_idle", "10"}, {"keepalives_interval", "5"}, {"keepalives_count", "4"}, {"tcp_user_timeout", "10000"}};

// What stands before `end`, or all of it; takes both from the front.
std::string_view take_until(std::string_view& rest, char end) {
  const std::string_view taken = rest.substr(0, rest.find(end));
  rest.remove_prefix(std::min(taken.size() + 1, rest.size()));
  return taken;
}

bool is_uri(std::string_view url) { return url.starts_with("postgres://") || url.starts_with("postgresql://"); }

// Takes the parameter if it is ours. Nothing if it is not.
std::optional<Status> take_ours(std::string_view name, std::string_view value, PostgresUrl& split) {
  if (name == "call_timeout") {
    const Result<Millis> duration = parse_duration(value);
    if (!duration) return Status(invalid("call_timeout: " + duration.fault().message));
    if (*duration <= Millis{0}) return Status(invalid("call_timeout must be greater than 0"));
    split.call_timeout = *duration;
    return ok_status();
  }
  if (name == "connections") {
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc{} || end != value.data() + value.size() || number < 1 || number > kConnectionsMax) {
      return Status(invalid(fmt::format("connections: \"{}\" is not a number from 1 to {}", value, kConnectionsMax)));
    }
    split.connections = number;
    return ok_status();
  }
  return std::nullopt;
}

// The length of the first keyword=value, quotes and escapes understood as libpq does.
std::size_t keyword_length(std::string_view text) {
  bool quoted = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\\') {
      ++at;
    } else if (text[at] == '\'') {
      quoted = !quoted;
    } else if (text[at] == ' ' && !quoted) {
      return at;
    }
  }
  return text.size();
}

using ConninfoOptions = std::unique_ptr<PQconninfoOption, decltype(&PQconninfoFree)>;

// The parts of postgres://USER:PASSWORD@HOSTS/DATABASE?PARAMETERS, as they stand there.
struct UriParts {
  std::string_view authority; // what stands before the database
  std::string_view database;
  std::string_view parameters;
};

UriParts parts_of(std::string_view uri) {
  uri.remove_prefix(uri.find("://") + 3);
  std::string_view before = take_until(uri, '?');
  const std::string_view authority = take_until(before, '/');
  return {authority, before, uri};
}

// Whether libpq would take part of a password for a host, a port or a database, which are shown in messages.
bool holds_unescaped_password(std::string_view uri) {
  const UriParts parts = parts_of(uri);
  if (parts.database.find('@') != std::string_view::npos) return true;
  if (std::count(parts.authority.begin(), parts.authority.end(), '@') > 1) return true;
  std::string_view hosts = parts.authority.substr(parts.authority.find('@') + 1); // all of it if there is none
  while (!hosts.empty()) {
    const std::string_view host = take_until(hosts, ',');
    const std::size_t bracket = host.rfind(']');
    const std::size_t colon = host.find(':', bracket == std::string_view::npos ? 0 : bracket);
    if (colon == std::string_view::npos || host.starts_with('[') != (bracket != std::string_view::npos)) continue;
    if (host.find_first_not_of("0123456789", colon + 1) != std::string_view::npos) return true;
  }
  return false;
}

// Every password in a URI, as it stands there.
std::vector<std::string_view> passwords_in(std::string_view uri) {
  std::vector<std::string_view> found;
  if (!is_uri(uri)) return found;
  UriParts parts = parts_of(uri);
  const std::string_view user = parts.authority.substr(0, parts.authority.find('@'));
  if (user.size() < parts.authority.size() && user.find(':') != std::string_view::npos) {
    found.push_back(user.substr(user.find(':') + 1));
  }
  while (!parts.parameters.empty()) {
    std::string_view value = take_until(parts.parameters, '&');
    const std::string_view name = take_until(value, '=');
    if (name == "password" || name == "sslpassword") found.push_back(value);
  }
  return found;
}

constexpr std::string_view kSslModes[] = {"disable", "allow", "prefer", "require", "verify-ca", "verify-full"};

std::string value_of(const PQconninfoOption* options, std::string_view keyword) {
  for (; options != nullptr && options->keyword != nullptr; ++options) {
    if (keyword == options->keyword) return options->val != nullptr ? options->val : "";
  }
  return "";
}

} // namespace

Result<PostgresUrl> split_postgres_url(std::string_view url) {
  PostgresUrl split;
  const bool uri = is_uri(url);
  if (uri) split.for_libpq = take_until(url, '?');
  char separator = uri ? '?' : ' ';
  while (!url.empty()) {
    const std::string_view parameter = url.substr(0, uri ? url.find('&') : keyword_length(url));
    url.remove_prefix(std::min(parameter.size() + 1, url.size()));
    std::string_view value = parameter;
    const std::string_view name = take_until(value, '=');
    if (const std::optional<Status> taken = take_ours(name, value, split)) {
      if (!*taken) return taken->fault();
      continue;
    }
    if (!split.for_libpq.empty()) split.for_libpq += separator;
    split.for_libpq += parameter;
    separator = uri ? '&' : ' ';
  }
  return split;
}

std::string without_secret(std::string message, std::string_view secret) {
  if (secret.empty()) return message;
  for (std::size_t at = message.find(secret); at != std::string::npos; at = message.find(secret, at)) {
    message.replace(at, secret.size(), "***");
    at += 3;
  }
  return message;
}

Result<PostgresTarget> postgres_target(const std::string& for_libpq) {
  if (is_uri(for_libpq) && holds_unescaped_password(for_libpq)) {
    return invalid(
        "the URL of the Postgres store cannot be read: in a user name or password the characters / ? # @ : % must be "
        "written as %2F %3F %23 %40 %3A %25. It is not shown here because of the password");
  }
  char* error = nullptr;
  const ConninfoOptions options(PQconninfoParse(for_libpq.c_str(), &error), &PQconninfoFree);
  if (!options) {
    std::string message = error != nullptr ? error : "out of memory";
    PQfreemem(error);
    while (!message.empty() && message.back() == '\n') message.pop_back();
    message = without_secret(std::move(message), for_libpq);
    for (const std::string_view secret : passwords_in(for_libpq)) message = without_secret(std::move(message), secret);
    // Of what is quoted wrongly, any word may belong to the password.
    if (!is_uri(for_libpq) && for_libpq.find("password") != std::string::npos) message = "(not shown: has a password)";
    return invalid("the URL of the Postgres store is not understood by libpq: " + message);
  }
  // libpq looks at these two when it connects; `oncekey check` does not connect.
  const std::string sslmode = value_of(options.get(), "sslmode");
  if (!sslmode.empty() && std::find(std::begin(kSslModes), std::end(kSslModes), sslmode) == std::end(kSslModes)) {
    return invalid(fmt::format("the URL of the Postgres store: sslmode must be {} (got \"{}\")",
                               fmt::join(kSslModes, ", "), sslmode));
  }
  if (const std::string trusted = value_of(options.get(), "sslrootcert");
      sslmode.starts_with('v') && !trusted.empty()) {
    if (const Status usable = check_trusted_certificates(trusted); !usable)
      return invalid("the URL of the Postgres store: sslrootcert " + usable.fault().message);
  }
  const std::string host = value_of(options.get(), "host");
  const std::string port = value_of(options.get(), "port");
  const std::string service = value_of(options.get(), "service");

  PostgresTarget target;
  target.name = fmt::format("{}{}/{}", host.empty() ? (service.empty() ? "localhost" : "service " + service) : host,
                            port.empty() ? "" : ":" + port, value_of(options.get(), "dbname"));
  const auto unless_given = [&](const char* keyword, const char* value) {
    if (value_of(options.get(), keyword).empty()) target.keywords.emplace_back(keyword, value);
  };
  for (const auto& [keyword, value] : kKeepalive) unless_given(keyword, value);
  unless_given("fallback_application_name", "oncekey");
  // Of several hosts the one that can be written to.
  if (host.find(',') != std::string::npos) unless_given("target_session_attrs", "read-write");
  // Of two values the later counts: what the URL says goes before our defaults, and our encoding before the URL's.
  target.keywords.emplace_back("dbname", for_libpq);
  target.keywords.emplace_back("client_encoding", "UTF8");
  return target;
}

} // namespace oncekey::postgres
