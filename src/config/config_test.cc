#include "config/config.h"

#include "config/settings.h"
#include "support/parsed_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <set>

namespace oncekey {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kUpstream = "upstream = \"http://127.0.0.1:9090\"\n";

Config read(const std::string& text) {
  auto config = parse_config(text, "test.toml");
  EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.fault().message);
  return config.ok() ? *config : Config{};
}

Result<Config> config_of_file(const std::string& path) {
  ServeFlags flags;
  flags.config = path;
  return config_or_fault(read_config(flags, NamedFiles::left_alone));
}

Policy read_route(const std::string& settings) {
  const Config config = read(kUpstream + std::string("[[route]]\npath = \"/*\"\n") + settings);
  return config.routes.empty() ? Policy{} : config.routes.front().policy;
}

std::string refused(const std::string& text) {
  const auto config = parse_config(text, "test.toml");
  EXPECT_FALSE(config.ok()) << "was not refused:\n" << text;
  return config.ok() ? "" : config.fault().message;
}

TEST(Config, OfTheManualIsRead) {
  const Config config = read(R"(
listen   = "127.0.0.1:8080"
admin    = "127.0.0.1:8081"
upstream = "http://127.0.0.1:9090"
store    = "journal:./oncekey-data"
lease    = "60s"

[[route]]
path   = "/v1/*"
policy = "stripe-v1"

[[route]]
path   = "/orders"
policy = "classic"
key    = "required"
scope  = "jwt:sub"
jwt_keys = "file:jwks.json"
wait   = "2s"
)");
  ASSERT_EQ(config.routes.size(), 2u);
  EXPECT_EQ(config.upstream.port, 9090);
  EXPECT_EQ(config.store, "journal:./oncekey-data");
  EXPECT_EQ(config.routes[0].policy.name, "stripe-v1");
  EXPECT_EQ(config.routes[0].policy.scope.size(), 2u);
  EXPECT_EQ(config.routes[1].path, "/orders");
  EXPECT_EQ(config.routes[1].policy.key, MissingKey::required);
  EXPECT_EQ(config.routes[1].policy.scope, (std::vector<ScopeSource>{{ScopeSource::Kind::jwt, "sub", false}}));
  EXPECT_EQ(config.routes[1].policy.tokens.keys, "file:jwks.json");
  EXPECT_EQ(config.routes[1].policy.wait, seconds(2));
}

TEST(Config, WithoutRoutesProtectsEverythingByTheClassicPolicy) {
  const Config config = read(kUpstream);
  ASSERT_EQ(config.routes.size(), 1u);
  EXPECT_EQ(config.routes[0].path, "/*");
  EXPECT_EQ(config.routes[0].name, "/*");
  EXPECT_EQ(config.routes[0].policy.name, "classic");
}

TEST(Config, DefaultsAtTheTopHoldForAllRoutesAndARouteOverridesThem) {
  const Config config = read(std::string(kUpstream) + R"(
policy = "stripe-v2"
lease = "5s"
retention = "48h"
wait = "1s"
upstream_timeout = "10s"
scope = "cookie:session"
[[route]]
path = "/a"
[[route]]
path = "/b"
policy = "classic"
lease = "7s"
)");
  ASSERT_EQ(config.routes.size(), 2u);
  const Policy& a = config.routes[0].policy;
  EXPECT_EQ(a.name, "stripe-v2");
  EXPECT_EQ(a.lease, seconds(5));
  EXPECT_EQ(a.retention, hours(48));
  EXPECT_EQ(a.wait, seconds(1));
  EXPECT_EQ(a.upstream_timeout, seconds(10));
  EXPECT_EQ(a.scope, (std::vector<ScopeSource>{{ScopeSource::Kind::cookie, "session", false}}));
  EXPECT_EQ(config.routes[1].policy.name, "classic");
  EXPECT_EQ(config.routes[1].policy.lease, seconds(7));
}

TEST(Config, EveryFieldOfAPolicyCanBeSetOnARoute) {
  const Policy p = read_route(R"(
policy = "classic"
methods = ["POST", "DELETE"]
key_syntax = "structured-string"
strict = true
identity = "key"
fingerprint = "canonical"
fingerprint_ignore = ["/metadata", "/sent_at"]
fingerprint_headers = "X-Tenant"
key = "pass"
mismatch = 409
in_progress = 425
kept = "200-299"
heed_should_retry = true
retention = "2h"
on_unknown = "hold"
on_abandoned = "hold"
errors = "stripe"
scope = ["header:Authorization", "header:X-Org?"]
key_from = ["header:PayPal-Request-Id", "fingerprint"]
window = "10m"
lease = "30s"
upstream_timeout = "40s"
wait = "3s"
max_waiters = 7
max_request_body = "64KiB"
max_stored_body = 1000
mode = "observe"
on_store_error = "bypass"
replay_set_cookie = true
)");
  EXPECT_EQ(p.methods, (std::vector<std::string>{"POST", "DELETE"}));
  EXPECT_EQ(p.key_syntax, KeySyntax::structured_string);
  EXPECT_TRUE(p.strict);
  EXPECT_EQ(p.identity, Identity::key);
  EXPECT_EQ(p.fingerprint, FingerprintMode::canonical);
  EXPECT_EQ(p.fingerprint_ignore, (std::vector<std::string>{"/metadata", "/sent_at"}));
  EXPECT_EQ(p.fingerprint_headers, (std::vector<std::string>{"X-Tenant"}));
  EXPECT_EQ(p.key, MissingKey::pass);
  EXPECT_EQ(p.mismatch_status, 409);
  EXPECT_EQ(p.in_progress_status, 425);
  EXPECT_EQ(p.kept.to_string(), "200-299");
  EXPECT_TRUE(p.heed_should_retry);
  EXPECT_EQ(p.retention, hours(2));
  EXPECT_EQ(p.on_unknown, OnUnknown::hold);
  EXPECT_EQ(p.on_abandoned, OnAbandoned::hold);
  EXPECT_EQ(p.errors, ErrorFormat::stripe);
  EXPECT_EQ(p.scope, (std::vector<ScopeSource>{{ScopeSource::Kind::header, "Authorization", false},
                                               {ScopeSource::Kind::header, "X-Org", true}}));
  EXPECT_EQ(p.key_from, (std::vector<KeySource>{{KeySource::Kind::header, "PayPal-Request-Id"},
                                                {KeySource::Kind::fingerprint, ""}}));
  EXPECT_EQ(p.window, std::chrono::minutes(10));
  EXPECT_EQ(p.lease, seconds(30));
  EXPECT_EQ(p.upstream_timeout, seconds(40));
  EXPECT_EQ(p.wait, seconds(3));
  EXPECT_EQ(p.max_waiters, 7u);
  EXPECT_EQ(p.max_request_body, 65536u);
  EXPECT_EQ(p.max_stored_body, 1000u);
  EXPECT_EQ(p.mode, Mode::observe);
  EXPECT_EQ(p.on_store_error, OnStoreError::bypass);
  EXPECT_TRUE(p.replay_set_cookie);
}

TEST(Config, AProbeCanBeSetOnARoute) {
  const Policy p = read_route("on_abandoned = \"probe\"\nprobe = \"GET /charges?key={key}\"\n");
  EXPECT_EQ(p.on_abandoned, OnAbandoned::probe);
  EXPECT_EQ(p.probe, (Question{"GET", "/charges?key={key}"}));
}

TEST(Config, LimitsCanBeSetAtTheTopAndOnARoute) {
  const Config c = read(kUpstream + std::string(R"(
rate = "100/s"
burst = 20
test_rate = "60/m"
test_burst = 2
max_in_flight = 50
rate_exempts_replays = true
upstream_breaker = 7
upstream_breaker_window = "20s"
upstream_breaker_pause = "3s"
[limits]
max_in_flight = 600
[[route]]
path = "/a"
rate = "36/h"
max_in_flight = 3
respond_async = true
compress = true
[[route]]
path = "/*"
rate_exempts_replays = false
)"));
  EXPECT_EQ(c.rates, (RateLimits{100, 20, 1, 2, 50}));
  EXPECT_EQ(c.breaker.failures, 7u);
  EXPECT_EQ(c.breaker.window, seconds(20));
  EXPECT_EQ(c.breaker.pause, seconds(3));
  EXPECT_EQ(c.limits.max_in_flight, 600u);
  ASSERT_EQ(c.routes.size(), 2u);
  const Policy& own = c.routes[0].policy;
  EXPECT_EQ(own.rates, (RateLimits{0.01, 0, 0, 0, 3}));
  EXPECT_TRUE(own.respond_async);
  EXPECT_TRUE(own.compress);
  EXPECT_TRUE(own.rate_exempts_replays) << "the top's default";
  EXPECT_EQ(c.routes[1].policy.rates, RateLimits{}) << "the gateway's are not copied: they are one bucket for all";
  EXPECT_FALSE(c.routes[1].policy.rate_exempts_replays);
  EXPECT_FALSE(c.routes[1].policy.respond_async);
}

TEST(Config, LimitsThatContradictEachOtherAreRefusedWhereTheyStand) {
  const auto at_the_top = [](const std::string& text) { return refused(kUpstream + text); };
  const auto on_a_route = [](const std::string& text) {
    return refused(kUpstream + std::string("[[route]]\npath = \"/*\"\n") + text);
  };
  EXPECT_THAT(at_the_top("burst = 5\n"), StartsWith("test.toml:2: burst is set without rate"));
  EXPECT_THAT(on_a_route("burst = 5\n"), StartsWith("test.toml:4: burst is set without rate"));
  EXPECT_THAT(at_the_top("rate = \"5/s\"\n[[route]]\npath = \"/*\"\nburst = 5\n"),
              StartsWith("test.toml:5: burst is set without rate"));
  EXPECT_THAT(on_a_route("rate = \"5/s\"\ntest_burst = 5\n"), StartsWith("test.toml:5: test_burst is set without"));
  EXPECT_THAT(on_a_route("rate = \"fast\"\n"), StartsWith("test.toml:4: rate: \"fast\" is not a rate"));
  EXPECT_THAT(on_a_route("rate = \"5/s\"\nburst = 0\n"), StartsWith("test.toml:5: burst: 0 is out of range"));
  EXPECT_THAT(at_the_top("max_in_flight = 9\n[limits]\nmax_in_flight = 8\n"),
              StartsWith("test.toml:2: max_in_flight (9)"));
  EXPECT_THAT(at_the_top("[limits]\nmax_in_flight = 8\nmax_upstream_connections = 4\n"),
              StartsWith("test.toml:3: limits.max_in_flight (8)"));
  EXPECT_THAT(at_the_top("rate_exempts_replays = true\n"), StartsWith("test.toml:2: rate_exempts_replays is set but"));
  EXPECT_THAT(on_a_route("rate = \"5/s\"\nmode = \"observe\"\n"), HasSubstr("would not be kept"));
  EXPECT_THAT(on_a_route("respond_async = true\nmode = \"observe\"\n"), HasSubstr("nothing to fetch later"));
  EXPECT_THAT(on_a_route("compress = true\nmode = \"observe\"\n"), HasSubstr("compress would do nothing"));
  EXPECT_THAT(on_a_route("respond_async = true\nkey_from = \"fingerprint\"\nwindow = \"5m\"\n"),
              HasSubstr("needs keys that clients choose"));
}

TEST(Config, EverySettingOfTheGatewayIsRead) {
  const Config c = read(R"(
listen = "0.0.0.0:80"
admin = "[::1]:81"
admin_token = "0123456789abcdef"
admin_tls_cert = "admin.pem"
admin_tls_key = "admin.key"
trust_clock = true
core_dumps = true
upstream = "https://api.internal"
upstream_ca = "ca.pem"
tls_cert = "cert.pem"
tls_key = "key.pem"
store = "journal:/data"
require_durability = "power"
threads = 3
gateway_name = "eu-1.a"
log_level = "debug"
log_format = "json"
access_log = "-"
cors_origins = ["https://app.example", "http://[::1]:3000"]
drain_timeout = "5s"
trusted_proxies = ["10.0.0.1", "FE80::1"]
[limits]
max_connections = 10
max_header_bytes = "16KiB"
max_buffered_bytes = "64MiB"
max_upstream_connections = 11
[timeouts]
connect = "1s"
request_headers = "2s"
request_body = "3s"
idle = "4s"
upstream_idle = "5s"
write = "6s"
tunnel_idle = "7s"
lame_duck = "8s"
)");
  EXPECT_EQ(c.listen.host, "0.0.0.0");
  EXPECT_EQ(c.admin.host, "::1");
  EXPECT_EQ(c.admin_token, "0123456789abcdef");
  EXPECT_EQ(c.admin_tls_cert, "admin.pem");
  EXPECT_EQ(c.admin_tls_key, "admin.key");
  EXPECT_TRUE(c.trust_clock);
  EXPECT_TRUE(c.core_dumps);
  EXPECT_TRUE(c.upstream.tls);
  EXPECT_EQ(c.upstream_ca, "ca.pem");
  EXPECT_EQ(c.tls_cert, "cert.pem");
  EXPECT_EQ(c.tls_key, "key.pem");
  EXPECT_EQ(c.store, "journal:/data");
  EXPECT_EQ(c.require_durability, "power");
  EXPECT_EQ(c.threads, 3u);
  EXPECT_EQ(c.gateway_name, "eu-1.a");
  EXPECT_EQ(c.log_level, "debug");
  EXPECT_EQ(c.log_format, "json");
  EXPECT_EQ(c.access_log, "-");
  EXPECT_EQ(c.cors_origins, (std::vector<std::string>{"https://app.example", "http://[::1]:3000"}));
  EXPECT_EQ(c.drain_timeout, seconds(5));
  EXPECT_EQ(c.trusted_proxies, (std::vector<std::string>{"10.0.0.1", "fe80::1"}));
  EXPECT_EQ(c.limits.max_connections, 10u);
  EXPECT_EQ(c.limits.max_header_bytes, 16u << 10);
  EXPECT_EQ(c.limits.max_buffered_bytes, 64u << 20);
  EXPECT_EQ(c.limits.max_upstream_connections, 11u);
  EXPECT_EQ(c.timeouts.connect, seconds(1));
  EXPECT_EQ(c.timeouts.request_headers, seconds(2));
  EXPECT_EQ(c.timeouts.request_body, seconds(3));
  EXPECT_EQ(c.timeouts.idle, seconds(4));
  EXPECT_EQ(c.timeouts.upstream_idle, seconds(5));
  EXPECT_EQ(c.timeouts.write, seconds(6));
  EXPECT_EQ(c.timeouts.tunnel_idle, seconds(7));
  EXPECT_EQ(c.timeouts.lame_duck, seconds(8));
}

TEST(Config, ARouteMayHaveAnUpstreamOfItsOwn) {
  const auto config = parse_config(R"(upstream = "http://main:80"
[[route]]
path = "/orders/*"
upstream = "https://Orders:443"
[[route]]
path = "/returns/*"
upstream = "https://orders"
[[route]]
path = "/same/*"
upstream = "http://main"
[[route]]
path = "/*"
)",
                                   "test.toml");
  ASSERT_TRUE(config.ok()) << config.fault().message;
  const auto goes_to = [&](std::size_t route) { return upstream_of(*config, config->routes[route]).origin(); };
  EXPECT_EQ(goes_to(0), "https://orders");
  EXPECT_EQ(goes_to(1), "https://orders");
  EXPECT_EQ(goes_to(2), "http://main");
  EXPECT_EQ(goes_to(3), "http://main");
  std::vector<std::string> all;
  for (const Url& url : upstreams_of(*config)) all.push_back(url.origin());
  EXPECT_EQ(all, (std::vector<std::string>{"http://main", "https://orders"}));
}

TEST(Config, WithoutAnUpstreamAtTheTopEveryRouteNeedsOne) {
  const auto good = parse_config("[[route]]\npath = \"/a\"\nupstream = \"http://a\"\n", "test.toml");
  ASSERT_TRUE(good.ok()) << good.fault().message;
  EXPECT_EQ(upstreams_of(*good).size(), 1u);
  const auto bad =
      parse_config("[[route]]\npath = \"/a\"\nupstream = \"http://a\"\n[[route]]\npath = \"/b\"\n", "test.toml");
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.fault().message,
            "test.toml:5: route /b has no upstream, and there is none at the top: set upstream in one of them");
}

TEST(Config, RefusesMoreUpstreamsThanItCanServe) {
  std::string text;
  for (int i = 0; i < 65; ++i) text += fmt::format("[[route]]\npath = \"/{}\"\nupstream = \"http://h{}\"\n", i, i);
  const auto config = parse_config(text, "test.toml");
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(config.fault().message, HasSubstr("there are 65 different upstreams: at most 64"));
}

TEST(Config, TokenComesFromTheEnvironmentOrAFileWhenItSaysSo) {
  ::setenv("ONCEKEY_TEST_TOKEN", "from-the-environment", 1);
  EXPECT_EQ(read(std::string("admin_token = \"env:ONCEKEY_TEST_TOKEN\"\n") + kUpstream).admin_token,
            "from-the-environment");
  const std::string path = testing::TempDir() + "oncekey_token_" + std::to_string(::getpid());
  std::ofstream(path) << "from-a-file-with-a-newline\n";
  EXPECT_EQ(read("admin_token = \"file:" + path + "\"\n" + kUpstream).admin_token, "from-a-file-with-a-newline");
  EXPECT_THAT(refused(std::string("admin_token = \"env:ONCEKEY_TEST_NO_SUCH\"\n") + kUpstream),
              StartsWith("test.toml:1: admin_token: the environment variable ONCEKEY_TEST_NO_SUCH is not set"));
}

TEST(Config, AVariableWithoutItsEnvIsNotTakenForTheToken) {
  EXPECT_THAT(refused(std::string("admin_token = \"ADMIN_TOKEN_VARIABLE\"\n") + kUpstream),
              StartsWith("test.toml:1: admin_token: \"ADMIN_TOKEN_VARIABLE\" looks like the name of a variable: write "
                         "\"env:ADMIN_TOKEN_VARIABLE\""));
  EXPECT_EQ(read(std::string("admin_token = \"0123456789ABCDEF\"\n") + kUpstream).admin_token, "0123456789ABCDEF");
}

TEST(Config, RoutesWithOnePathGetNamesOfTheirOwn) {
  const Config config = read(std::string(kUpstream) + R"(
[[route]]
path = "/orders"
methods = ["POST"]
[[route]]
path = "/orders"
methods = ["DELETE"]
)");
  ASSERT_EQ(config.routes.size(), 2u);
  EXPECT_EQ(config.routes[0].name, "/orders");
  EXPECT_EQ(config.routes[1].name, "/orders#2");
}

TEST(Config, ReportsAllFindingsAtOnceInTheOrderOfTheFile) {
  const std::string message = refused(R"(lisen = "127.0.0.1:1"
threads = "four"
[[route]]
path = "/a"
retension = "1h"
[[route]]
path = "/b"
lease = 60
)");
  EXPECT_EQ(message,
            "test.toml:1: lisen: no such setting; did you mean \"listen\"?\n"
            "test.toml:2: threads: expected a whole number, without quotes, found text\n"
            "test.toml:5: retension: no such setting of a route; did you mean \"retention\"?\n"
            "test.toml:8: lease: expected a duration in quotes, as in \"60s\", found a whole number");
}

TEST(Config, ThatIsNotTomlIsRefusedWithItsLine) {
  EXPECT_THAT(refused("listen = \"127.0.0.1:1\"\nadmin = = 3\n"), StartsWith("test.toml:2: not valid TOML: "));
}

TEST(Config, ThatCannotBeReadIsRefusedByName) {
  const auto config = config_of_file("no/such/file.toml");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.fault().message, "no/such/file.toml: cannot be read: No such file or directory");
}

TEST(Config, IsLoadedFromAFile) {
  const std::string path = testing::TempDir() + "oncekey_config_" + std::to_string(::getpid());
  std::ofstream(path) << kUpstream << "threads = 2\n";
  const auto config = config_of_file(path);
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->threads, 2u);
}

// docs/CONFIG.md names a setting in the first cell of a table row: "| `name` |". A setting that is in the code and not
// there, or the other way round, fails here.
TEST(ConfigManual, DescribesEverySettingAndNoOther) {
  std::ifstream file(std::string(ONCEKEY_SOURCE_DIR) + "/docs/CONFIG.md");
  std::set<std::string> described;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("| `")) described.insert(line.substr(3, line.find('`', 3) - 3));
  }
  std::set<std::string> known;
  const auto add = [&](std::string_view prefix, auto settings) {
    for (const auto& setting : settings) known.insert(fmt::format("{}{}", prefix, setting.name));
  };
  add("", gateway_settings());
  add("", route_settings());
  add("", default_settings());
  add("", policy_settings());
  add("limits.", limit_settings());
  add("timeouts.", timeout_settings());
  add("webhook.", webhook_settings());
  add("destination.", destination_settings());
  add("destination.", endpoint_settings());
  EXPECT_EQ(described, known);
}

TEST(EventLoops, AreOneForEveryTwoCoresUnlessTheyAreSet) {
  Config config;
  EXPECT_EQ(event_loops(config, 0), 1u); // not known
  EXPECT_EQ(event_loops(config, 1), 1u);
  EXPECT_EQ(event_loops(config, 2), 1u);
  EXPECT_EQ(event_loops(config, 4), 2u);
  EXPECT_EQ(event_loops(config, 17), 8u);
  config.threads = 3;
  EXPECT_EQ(event_loops(config, 2), 3u);
}

} // namespace
} // namespace oncekey
