// The settings of the whole gateway: what stands at the top of the file, in [limits] and in [timeouts].
#include "base/ascii.h"
#include "base/masked_url.h"
#include "config/secret.h"
#include "config/settings.h"
#include "config/suggestion.h"
#include "core/rate_keeper.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>

namespace oncekey {
namespace {

// Short, so that every record can carry it.
Result<std::string> as_gateway_name(const Node& node) {
  constexpr std::size_t kCharactersMax = 32;
  const std::string plain = std::string(kAlphanumeric) + "-._";
  auto text = as_text(node);
  if (!text || (text->size() <= kCharactersMax && consists_of(*text, plain))) return text;
  return invalid("expected 1 to {} letters, digits, \"-\", \".\" or \"_\", found \"{}\"", kCharactersMax, *text);
}

Result<std::string> as_store(const Node& node) {
  static constexpr std::array<std::string_view, 8> kKinds{"memory", "journal", "postgres",      "postgresql",
                                                          "redis",  "rediss",  "redis+cluster", "rediss+cluster"};
  auto text = and_then(as_text(node), resolve_secret);
  if (!text) return text;
  if (*text == "memory:" || (text->starts_with("journal:") && text->size() > 8)) return text;
  const std::string kind = text->substr(0, text->find(':'));
  const bool known = std::find(kKinds.begin(), kKinds.end(), kind) != kKinds.end();
  if (known && text->substr(kind.size()).starts_with("://")) return text;
  return invalid(
      "\"{}\" is not a store: write journal:PATH, postgres://..., redis://..., redis+cluster://... or memory:{}",
      masked_url(*text), known ? "" : did_you_mean(kind, kKinds));
}

Result<std::string> parse_ip_address(std::string_view text) {
  std::array<std::uint8_t, 16> bytes{};
  std::array<char, INET6_ADDRSTRLEN> canonical{};
  const int family = text.find(':') == std::string_view::npos ? AF_INET : AF_INET6;
  if (inet_pton(family, std::string(text).c_str(), bytes.data()) != 1)
    return invalid("\"{}\" is not an IP address; names and ranges are not supported here", text);
  return std::string(inet_ntop(family, bytes.data(), canonical.data(), canonical.size()));
}

// As in a Host header without its port, in lower case.
Result<std::string> parse_host_name(std::string_view text) {
  if (text.empty() || !consists_of(text, std::string(kAlphanumeric) + "-._"))
    return invalid("expected a host name without a port, such as \"ops.example\", found \"{}\"", text);
  return lower_case(text);
}

constexpr std::array<std::string_view, 2> kDurabilities{"power", "process"};
constexpr std::array<std::string_view, 2> kLogFormats{"text", "json"};
constexpr std::array<std::string_view, 4> kLogLevels{"debug", "info", "warning", "error"};
constexpr std::array<std::string_view, 3> kPublished{"expiry", "routes", "none"};
// More threads than cores gain nothing, and no machine in front of one store has more cores than this.
constexpr std::int64_t kMostThreads = 256;
constexpr Millis kShortestTimeout{1};
// A breaker that waits for more failures than this never opens in practice.
constexpr std::int64_t kMostBreakerFailures = 1000;

// "ADMIN_TOKEN": capitals and underscores, as environment variables are written.
bool looks_like_a_variable(std::string_view text) {
  return text.find('_') != std::string_view::npos && std::isalpha(static_cast<unsigned char>(text[0])) != 0 &&
         consists_of(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
}

// "${NAME}" and "$NAME", as shells, compose files and other programs write variables. Empty if it is neither.
std::string_view expanded_elsewhere(std::string_view text) {
  if (!text.starts_with('$')) return {};
  text.remove_prefix(1);
  if (text.starts_with('{') && text.ends_with('}')) text = text.substr(1, text.size() - 2);
  const bool name = !text.empty() && text[0] > '9' && consists_of(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
  return name ? text : std::string_view();
}

// A secret that stands in the file itself. What was meant as the place of one is refused, since every reader of the
// file would know the token. A fault shows no more of it than the name of a variable.
Status check_written_secret(std::string_view text) {
  if (looks_like_a_variable(text))
    return invalid(
        "\"{0}\" looks like the name of a variable: write \"env:{0}\". A name without its env: would be taken for the "
        "secret itself",
        text);
  if (const std::string_view name = expanded_elsewhere(text); !name.empty())
    return invalid("\"{0}\" is not expanded, and would be the secret itself: write \"env:{1}\"", text, name);
  if (text.starts_with('$'))
    return invalid(
        "it begins with $, and nothing is expanded here: write \"env:NAME\" for a variable, or begin the "
        "secret with a letter or digit");
  if (text.starts_with('/'))
    return invalid(
        "it begins with / as a path does, and would be the secret itself: write \"file:PATH\" for the first "
        "line of a file, or begin the secret with a letter or digit");
  for (const std::string_view place : {"env:", "file:"}) {
    const std::string_view written = text.substr(0, place.size());
    if (written != place && equal_ignoring_case(written, place))
      return invalid(
          "it begins with \"{0}\", and would be the secret itself: write \"{1}\" in small letters, as in "
          "\"{1}{2}\"",
          written, place, place == "env:" ? "NAME" : "PATH");
  }
  return ok_status();
}

Result<std::string> as_secret(const Node& node) {
  return and_then(as_text(node), [](const std::string& text) -> Result<std::string> {
    if (const Status written = check_written_secret(text); !written) return written.fault();
    return resolve_secret(text);
  });
}

Result<PublishedPolicies> as_published(const Node& node) {
  return and_then(as_one_of(node, kPublished), [](const std::string& word) {
    return Result(word == "expiry"   ? PublishedPolicies::expiry
                  : word == "routes" ? PublishedPolicies::routes
                                     : PublishedPolicies::none);
  });
}

// As browsers write it into Origin: scheme, host and port, where it is not the scheme's own. Compared byte for byte.
Status check_origin(std::string_view origin) {
  const std::size_t scheme_end = origin.find("://");
  const std::string_view scheme = origin.substr(0, scheme_end);
  if (scheme_end == std::string_view::npos || scheme.empty())
    return invalid("\"{}\" is not an origin: write scheme and host, as in \"https://app.example\"", origin);
  const std::string_view rest = origin.substr(scheme_end + 3);
  if (rest.ends_with('/') && rest.find('/') == rest.size() - 1)
    return invalid("\"{}\" ends in a slash, and no browser sends it so: write \"{}\"", origin,
                   origin.substr(0, origin.size() - 1));
  if (rest.find_first_of("/?#") != std::string_view::npos)
    return invalid("\"{}\" has a path, and an origin has none: write \"{}\"", origin,
                   origin.substr(0, scheme_end + 3 + rest.find_first_of("/?#")));
  if (rest.empty() || !consists_of(origin, "abcdefghijklmnopqrstuvwxyz0123456789+-._:/[]"))
    return invalid(
        "\"{}\" is not an origin: write it in lower case and without a user name or a pattern, as in "
        "\"https://app.example\"",
        origin);
  if ((scheme == "https" && rest.ends_with(":443")) || (scheme == "http" && rest.ends_with(":80")))
    return invalid("\"{}\" names the usual port, which browsers leave out: write \"{}\"", origin,
                   origin.substr(0, origin.rfind(':')));
  return ok_status();
}

Result<std::vector<std::string>> as_origins(const Node& node) {
  auto texts = as_texts(node);
  if (!texts) return texts;
  std::vector<std::string> wrong;
  for (const std::string& text : *texts) {
    if (text == "*") {
      if (texts->size() > 1) wrong.emplace_back("\"*\" allows all origins: write it alone");
    } else if (const Status good = check_origin(text); !good) {
      wrong.push_back(good.fault().message);
    }
  }
  if (!wrong.empty()) return invalid("{}", fmt::join(wrong, "; "));
  return texts;
}

Result<Millis> as_timeout(const Node& node) { return as_duration(node, kShortestTimeout); }

// 0 is for ever.
Result<Millis> as_keeping(const Node& node) {
  const auto keeping = as_duration(node);
  return keeping && *keeping == Millis(0) ? keeping : as_duration(node, std::chrono::seconds(1));
}

// At least `least` bytes: a limit of 0 would refuse everything.
Result<std::uint64_t> as_size_limit(const Node& node, std::uint64_t least,
                                    std::uint64_t most = std::uint64_t{1} << 40) {
  const auto bytes = as_bytes(node);
  if (bytes && *bytes < least) return invalid("{} is out of range: at least {} bytes are needed", *bytes, least);
  if (bytes && *bytes > most) return invalid("{} is out of range: at most {} bytes make sense", *bytes, most);
  return bytes;
}

Result<Url> parse_collector(std::string_view text) {
  auto url = parse_url(text);
  if (url && url->target.find('?') != std::string::npos)
    return invalid("expected a URL without a query, as in \"http://127.0.0.1:4318\"");
  return url;
}

// As a part, and also none.
Result<double> as_sample(const Node& node) {
  const auto* const text = node.as_string();
  if (text != nullptr && text->get() == "0%") return 0.0;
  return as_part(node);
}

// "2GiB", or a part of the disk, as in "10%".
Status read_disk_reserve(const Node& node, Limits& limits) {
  const auto* text = node.as_string();
  const bool part = text != nullptr && text->get().ends_with('%');
  return part ? put(limits.disk_reserve_part, as_part(node)) : put(limits.disk_reserve_bytes, as_bytes(node));
}

constexpr Setting<Config> kGatewaySettings[] = {
    {"policy", check_policy<Config>},
    {"listen", [](auto& v, auto& c) { return put(c.listen, parsed(v, parse_address)); }},
    {"admin", [](auto& v, auto& c) { return put(c.admin, parsed(v, parse_address)); }},
    {"admin_token", [](auto& v, auto& c) { return put(c.admin_token, as_secret(v)); }},
    {"admin_read_token", [](auto& v, auto& c) { return put(c.admin_read_token, as_secret(v)); }},
    {"admin_tls_cert", [](auto& v, auto& c) { return put(c.admin_tls_cert, as_text(v)); }},
    {"admin_tls_key", [](auto& v, auto& c) { return put(c.admin_tls_key, as_text(v)); }},
    {"admin_client_ca", [](auto& v, auto& c) { return put(c.admin_client_ca, as_text(v)); }},
    {"admin_operators", [](auto& v, auto& c) { return put(c.admin_operators, as_texts(v)); }},
    {"admin_hosts", [](auto& v, auto& c) { return put(c.admin_hosts, as_list(v, parse_host_name)); }},
    {"upstream", [](auto& v, auto& c) { return put(c.upstream, parsed(v, parse_upstream)); }},
    {"upstream_ca", [](auto& v, auto& c) { return put(c.upstream_ca, as_text(v)); }},
    {"tls_cert", [](auto& v, auto& c) { return put(c.tls_cert, as_text(v)); }},
    {"tls_key", [](auto& v, auto& c) { return put(c.tls_key, as_text(v)); }},
    {"client_ca", [](auto& v, auto& c) { return put(c.client_ca, as_text(v)); }},
    {"store", [](auto& v, auto& c) { return put(c.store, as_store(v)); }},
    {"require_durability", [](auto& v, auto& c) { return put(c.require_durability, as_one_of(v, kDurabilities)); }},
    {"encryption_key_file", [](auto& v, auto& c) { return put(c.encryption_key_file, as_text(v)); }},
    {"trust_clock", [](auto& v, auto& c) { return put(c.trust_clock, as_switch(v)); }},
    {"core_dumps", [](auto& v, auto& c) { return put(c.core_dumps, as_switch(v)); }},
    {"gateway_name", [](auto& v, auto& c) { return put(c.gateway_name, as_gateway_name(v)); }},
    {"threads", [](auto& v, auto& c) { return put_count(c.threads, v, 0, kMostThreads); }},
    {"log_level", [](auto& v, auto& c) { return put(c.log_level, as_one_of(v, kLogLevels)); }},
    {"log_format", [](auto& v, auto& c) { return put(c.log_format, as_one_of(v, kLogFormats)); }},
    {"access_log", [](auto& v, auto& c) { return put(c.access_log, as_text(v)); }},
    {"audit_log", [](auto& v, auto& c) { return put(c.audit_log, as_text(v)); }},
    {"audit_log_size", [](auto& v, auto& c) { return put(c.audit_log_size, as_bytes(v)); }},
    {"audit_log_keep", [](auto& v, auto& c) { return put(c.audit_log_keep, as_keeping(v)); }},
    {"otlp_endpoint", [](auto& v, auto& c) { return put(c.otlp_endpoint, parsed(v, parse_collector)); }},
    {"trace_sample", [](auto& v, auto& c) { return put(c.trace_sample, as_sample(v)); }},
    {"cors_origins", [](auto& v, auto& c) { return put(c.cors_origins, as_origins(v)); }},
    {"orphan_after", [](auto& v, auto& c) { return put(c.orphan_after, as_duration(v)); }},
    {"drain_timeout", [](auto& v, auto& c) { return put(c.drain_timeout, as_duration(v)); }},
    {"publish_policies", [](auto& v, auto& c) { return put(c.publish_policies, as_published(v)); }},
    {"outbox", [](auto& v, auto& c) { return put(c.outbox, parsed(v, parse_address)); }},
    {"outbox_token", [](auto& v, auto& c) { return put(c.outbox_token, as_secret(v)); }},
    {"rate", [](auto& v, auto& c) { return put(c.rates.rate, parsed(v, parse_rate)); }},
    {"burst", [](auto& v, auto& c) { return put(c.rates.burst, as_burst(v)); }},
    {"test_rate", [](auto& v, auto& c) { return put(c.rates.test_rate, parsed(v, parse_rate)); }},
    {"test_burst", [](auto& v, auto& c) { return put(c.rates.test_burst, as_burst(v)); }},
    {"max_in_flight", [](auto& v, auto& c) { return put_count(c.rates.max_in_flight, v, 1); }},
    {"address_rate", [](auto& v, auto& c) { return put(c.address_rate.per_second, parsed(v, parse_rate)); }},
    {"address_burst", [](auto& v, auto& c) { return put(c.address_rate.burst, as_burst(v)); }},
    {"upstream_breaker", [](auto& v, auto& c) { return put_count(c.breaker.failures, v, 0, kMostBreakerFailures); }},
    {"upstream_breaker_window", [](auto& v, auto& c) { return put(c.breaker.window, as_timeout(v)); }},
    {"upstream_breaker_pause", [](auto& v, auto& c) { return put(c.breaker.pause, as_timeout(v)); }},
    {"trusted_proxies",
     [](auto& v, auto& c) { return put(c.trusted_proxies, as_list(v, parse_ip_address, Twice::allowed)); }},
};

constexpr Setting<Limits> kLimitSettings[] = {
    {"max_in_flight", [](auto& v, auto& l) { return put_count(l.max_in_flight, v, 1); }},
    {"max_connections", [](auto& v, auto& l) { return put_count(l.max_connections, v, 1); }},
    // A smaller limit refuses ordinary browser requests, and no server accepts headers above the larger one.
    {"max_header_bytes", [](auto& v, auto& l) { return put(l.max_header_bytes, as_size_limit(v, 1024, 1u << 20)); }},
    {"max_buffered_bytes", [](auto& v, auto& l) { return put(l.max_buffered_bytes, as_size_limit(v, 1024)); }},
    {"max_upstream_connections", [](auto& v, auto& l) { return put_count(l.max_upstream_connections, v, 1); }},
    {"max_connections_per_address", [](auto& v, auto& l) { return put_count(l.max_connections_per_address, v, 1); }},
    {"share_per_address", [](auto& v, auto& l) { return put(l.share_per_address, as_part(v)); }},
    {"share_per_account", [](auto& v, auto& l) { return put(l.share_per_account, as_part(v)); }},
    {"store_share_per_hour", [](auto& v, auto& l) { return put(l.store_share_per_hour, as_part(v)); }},
    // In less than this the store's own files leave no room for records.
    {"max_store_bytes", [](auto& v, auto& l) { return put(l.max_store_bytes, as_size_limit(v, 1u << 20)); }},
    {"disk_reserve", read_disk_reserve},
    {"min_rate", [](auto& v, auto& l) { return put(l.min_rate, as_size_limit(v, 1, 1u << 30)); }},
};

constexpr Setting<Timeouts> kTimeoutSettings[] = {
    {"connect", [](auto& v, auto& t) { return put(t.connect, as_timeout(v)); }},
    {"request_headers", [](auto& v, auto& t) { return put(t.request_headers, as_timeout(v)); }},
    {"request_body", [](auto& v, auto& t) { return put(t.request_body, as_timeout(v)); }},
    {"idle", [](auto& v, auto& t) { return put(t.idle, as_timeout(v)); }},
    {"upstream_idle", [](auto& v, auto& t) { return put(t.upstream_idle, as_timeout(v)); }},
    {"write", [](auto& v, auto& t) { return put(t.write, as_timeout(v)); }},
    {"tunnel_idle", [](auto& v, auto& t) { return put(t.tunnel_idle, as_timeout(v)); }},
    {"lame_duck", [](auto& v, auto& t) { return put(t.lame_duck, as_duration(v)); }},
};

} // namespace

Settings<Config> gateway_settings() { return kGatewaySettings; }
Settings<Limits> limit_settings() { return kLimitSettings; }
Settings<Timeouts> timeout_settings() { return kTimeoutSettings; }

} // namespace oncekey
