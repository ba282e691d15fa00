// What is refused, each with the line it stands on and the reason; and what is allowed with a warning.
#include "config/problems.h"
#include "support/parsed_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace oncekey {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Optional;
using testing::StartsWith;

struct BadConfig {
  const char* text;    // behind a line 1 that names the upstream
  const char* finding; // the whole of the message starts with "bad.toml:" and this
};

void expect_refused(const BadConfig& bad) {
  const auto config = parse_config(std::string("upstream = \"http://127.0.0.1:9090\"\n") + bad.text, "bad.toml");
  ASSERT_FALSE(config.ok()) << "was not refused:\n" << bad.text;
  EXPECT_THAT(config.fault().message, testing::StartsWith(std::string("bad.toml:") + bad.finding)) << bad.text;
  EXPECT_THAT(config.fault().message, testing::Not(HasSubstr("\n"))) << "one mistake, one finding";
}

TEST(BadSettings, AreRefusedWithTheirLine) {
  const BadConfig cases[] = {
      {"listen = 8080", "2: listen: expected text in quotes, found a whole number"},
      {"listen = \"8080\"", "2: listen: \"8080\" is not an address to listen on"},
      {"upstream_ca = \"\"\n", "2: upstream_ca: must not be empty"},
      {"store = \"postgres:db\"", "2: store: \"postgres:db\" is not a store: write journal:PATH, postgres://"},
      {"store = \"jornal:x\"", "2: store: \"jornal:x\" is not a store: write journal:PATH, postgres://"},
      {"store = \"postgre://u:secret@h/db\"", "2: store: \"postgre://u:***@h/db\" is not a store"},
      {"store = \"journal:\"", "2: store: \"journal:\" is not a store"},
      {"require_durability = \"disk\"", "2: require_durability: \"disk\" is not one of \"power\", \"process\""},
      {"log_level = \"warn\"", "2: log_level: \"warn\" is not one of"},
      {"log_format = \"xml\"", "2: log_format: \"xml\" is not one of \"text\", \"json\""},
      {"access_log = \"\"", "2: access_log: must not be empty"},
      {"cors_origins = \"app.example\"",
       "2: cors_origins: \"app.example\" is not an origin: write scheme and host, as in \"https://app.example\""},
      {"cors_origins = \"https://app.example/\"",
       "2: cors_origins: \"https://app.example/\" ends in a slash, and no browser sends it so: write "
       "\"https://app.example\""},
      {"cors_origins = \"https://app.example/shop\"",
       "2: cors_origins: \"https://app.example/shop\" has a path, and an origin has none: write "
       "\"https://app.example\""},
      {"cors_origins = \"https://app.example:443\"",
       "2: cors_origins: \"https://app.example:443\" names the usual port, which browsers leave out: write "
       "\"https://app.example\""},
      {"cors_origins = \"https://App.example\"",
       "2: cors_origins: \"https://App.example\" is not an origin: write it in"},
      {"cors_origins = \"https://*.example\"", "2: cors_origins: \"https://*.example\" is not an origin: write it in"},
      {"cors_origins = \"null\"", "2: cors_origins: \"null\" is not an origin"},
      {"cors_origins = [\"*\", \"https://a.example\"]", "2: cors_origins: \"*\" allows all origins: write it alone"},
      {"gateway_name = \"a b\"",
       "2: gateway_name: expected 1 to 32 letters, digits, \"-\", \".\" or \"_\", found \"a b\""},
      {"gateway_name = \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"", "2: gateway_name: expected 1 to 32 letters"},
      {"threads = -1", "2: threads: -1 is out of range: 0 to 256 is allowed"},
      {"threads = 1.5", "2: threads: expected a whole number, without quotes, found a fraction"},
      {"trusted_proxies = [\"10.0.0.0/8\"]", "2: trusted_proxies: \"10.0.0.0/8\" is not an IP address"},
      {"drain_timeout = \"soon\"", "2: drain_timeout: \"soon\" is not a duration"},
      {"policy = \"clasic\"",
       "2: policy: unknown policy \"clasic\"; use one of classic, ietf, stripe-v1, stripe-v2; did you mean "
       "\"classic\"?"},
      {"lease = \"400d\"", "2: lease: \"400d\" is out of range"},
      {"path = \"/x\"", "2: path: belongs to a route: write it under [[route]]"},
      {"kept = \"200\"", "2: kept: belongs to a route: write it under [[route]]"},
      {"zzzzzzzz = 1", "2: zzzzzzzz: no such setting"},
      {"path_case = \"any\"", "2: path_case: \"any\" is not known here: allowed are \"exact\" and \"ignore\""},
      {"publish_policies = \"all\"", "2: publish_policies: \"all\" is not one of \"expiry\", \"routes\", \"none\""},
      {"scope = \"header:Host\"", "2: scope: \"header:Host\" would take A.example:443 and a.example for two"},
      {"[[route]]\npath = \"/a/../b\"", "3: path: \"/a/../b\" is not in normal form"},
      {"[[route]]\npath = \"/a%2Fb\"", "3: path: \"/a%2Fb\" is not in normal form"},
      {"limits = 3", "2: limits: is a section: write [limits] on a line of its own"},
      {"[limits]\nmax_conections = 3", "3: limits.max_conections: no such setting; did you mean \"max_connections\"?"},
      {"[limits]\nmax_connections = 0", "3: limits.max_connections: 0 is out of range"},
      {"[limits]\nmax_header_bytes = 10", "3: limits.max_header_bytes: 10 is out of range"},
      {"[limits]\nmax_header_bytes = true", "3: limits.max_header_bytes: expected a size"},
      {"[timeouts]\nidle = \"0s\"", "3: timeouts.idle: \"0s\" is out of range"},
      {"[route]\npath = \"/a\"", "2: route: write [[route]], with two brackets"},
      {"[[route]]\nkey = \"required\"", "2: path: is missing"},
      {"[[route]]\npath = \"orders\"", "3: path: \"orders\" matches nothing"},
      {"[[route]]\npath = \"/a?b\"", "3: path: a path is compared without the query"},
      {"[[route]]\npath = \"/a b\"", "3: path: a path holds no spaces"},
      {"[[route]]\npath = \"/a\"\nlisten = \"127.0.0.1:1\"", "4: listen: is a setting of the whole gateway"},
      {"[[route]]\npath = \"/a\"\npolicy = \"x\"", "4: policy: unknown policy \"x\""},
      {"[[route]]\npath = \"/a\"\nmethods = [\"post\"]", "4: methods: \"post\" is not a method"},
      {"[[route]]\npath = \"/a\"\nmethods = [\"CONNECT\"]", "4: methods: CONNECT cannot be protected"},
      {"[[route]]\npath = \"/a\"\nmethods = [\"POST\", \"POST\"]", "4: methods: \"POST\" stands twice"},
      {"[[route]]\npath = \"/a\"\nstrict = \"yes\"", "4: strict: expected true or false, without quotes, found text"},
      {"[[route]]\npath = \"/a\"\nmismatch = 200", "4: mismatch: 200 is out of range: 400 to 499"},
      {"[[route]]\npath = \"/a\"\nin_progress = 500", "4: in_progress: 500 is out of range"},
      {"[[route]]\npath = \"/a\"\nkept = \"2xx\"", "4: kept: \"2xx\" is not a set of statuses"},
      {"[[route]]\npath = \"/a\"\nkey = \"maybe\"", "4: key: \"maybe\""},
      {"[[route]]\npath = \"/a\"\nscope = \"client-cert\"", "4: scope = \"client-cert\" needs client_ca"},
      {"[[route]]\npath = \"/a\"\nscope = \"ip\"", "4: scope: \"ip\" is not a scope"},
      {"[[route]]\npath = \"/a\"\nscope = [1]", "4: scope: expected text in quotes, found a whole number"},
      {"[[route]]\npath = \"/a\"\nkey_from = \"Idempotency-Key\"", "4: key_from: \"Idempotency-Key\" is not a source"},
      {"[[route]]\npath = \"/a\"\nfingerprint_headers = [\"X Y\"]", "4: fingerprint_headers: \"X Y\" is not the name"},
      {"[[route]]\npath = \"/a\"\nfingerprint_ignore = \"x\"", "4: fingerprint_ignore: \"x\" is not a JSON pointer"},
      {"[[route]]\npath = \"/a\"\nmax_stored_body = \"8MB\"", "4: max_stored_body: \"8MB\" is not a size"},
      {"[[route]]\npath = \"/a\"\nmax_stored_body = -1", "4: max_stored_body: -1 is out of range"},
      {"[[route]]\npath = \"/a\"\nprobe = \"POST /x?{key}\"", "4: probe: \"POST /x?{key}\" is not a probe"},
  };
  for (const BadConfig& bad : cases) expect_refused(bad);
}

TEST(UnsafeCombinations, AreRefusedWithTheReason) {
  const BadConfig cases[] = {
      {"retention = \"30s\"\nlease = \"60s\"", "2: retention (30s) is shorter than lease (60s)"},
      {"lease = \"48h\"", "2: retention (24h) is shorter than lease (2d)"},
      {"lease = \"1s\"\nretention = \"60s\"", "3: retention (60s) is shorter than upstream_timeout plus lease"},
      {"[[route]]\npath = \"/a\"\nretention = \"1s\"", "4: retention (1s) is shorter than lease (60s)"},
      {"lease = \"0s\"", "2: lease (0s) is too short"},
      {"lease = \"99ms\"", "2: lease (99ms) is too short"},
      {"wait = \"2m\"", "2: wait (2m) is longer than upstream_timeout (60s)"},
      {"upstream_timeout = \"1s\"\n[[route]]\npath = \"/a\"\nwait = \"2s\"", "5: wait (2s) is longer"},
      {"[[route]]\npath = \"/a\"\nwait = \"2s\"\nmax_waiters = 0", "5: max_waiters is 0, so no request can wait"},
      {"[[route]]\npath = \"/a\"\nkey_from = \"fingerprint\"", "4: key_from = \"fingerprint\" needs a window"},
      {"[[route]]\npath = \"/a\"\nkey_from = \"fingerprint\"\nwindow = \"0s\"", "5: key_from = \"fingerprint\" needs"},
      {"[[route]]\npath = \"/a\"\nkey_from = \"fingerprint\"\nwindow = \"5s\"", "5: window (5s) is shorter than lease"},
      {"[[route]]\npath = \"/a\"\nwindow = \"5m\"", "4: window is set but key_from has no \"fingerprint\""},
      {"[[route]]\npath = \"/a\"\nkey = \"required\"\nkey_from = \"fingerprint\"\nwindow = \"5m\"",
       "4: key = \"required\" and key_from = \"fingerprint\" contradict each other"},
      {"[[route]]\npath = \"/a\"\nkey_from = [\"fingerprint\", \"header:X\"]\nwindow = \"5m\"",
       "4: \"fingerprint\" must come last"},
      {"[[route]]\npath = \"/a\"\nkey_from = []", "4: key_from is empty"},
      {"[[route]]\npath = \"/a\"\nmethods = []", "4: methods is empty"},
      {"scope = []", "2: scope is empty: one tenant's answers would be replayed to another"},
      {"scope = \"header:X-Account?\"", "2: every part of scope is optional"},
      {"scope = [\"global\", \"header:X\"]", "2: \"global\" cannot be combined"},
      {"scope = \"host\"", "2: \"host\" alone lets every caller of a host name"},
      {"scope = [\"header:Authorization?\", \"host\"]", "2: \"host\" alone lets every caller of a host name"},
      {"ignore_host = true\nscope = [\"header:X\", \"host\"]", "2: ignore_host = true and \"host\" in scope"},
      {"[[route]]\npath = \"/a\"\non_abandoned = \"probe\"", "4: on_abandoned = \"probe\" needs a probe"},
      {"[[route]]\npath = \"/a\"\non_abandoned = \"probe\"\nprobe = \"GET /x?k={key}\"\nkey_from = \"fingerprint\"\n"
       "window = \"10m\"",
       "5: probe cannot ask for a key that is made of the fingerprint"},
      {"[[route]]\npath = \"/a\"\nprobe = \"GET /x?k={key}\"", "4: probe is set but on_abandoned is not \"probe\""},
      {"[[route]]\npath = \"/a\"\nfingerprint_ignore = \"/m\"", "4: fingerprint_ignore needs fingerprint"},
      {"[[route]]\npath = \"/a\"\nmax_request_body = 0", "4: max_request_body is 0"},
      {"[limits]\nmax_buffered_bytes = \"4MiB\"\n[[route]]\npath = \"/a\"\nmax_request_body = \"5MiB\"\n"
       "max_stored_body = \"1MiB\"",
       "6: max_request_body is larger than limits.max_buffered_bytes"},
      {"admin = \"0.0.0.0:8081\"", "2: admin is on 0.0.0.0, which others can reach, and admin_token is not set"},
      {"admin_tls_cert = \"a.pem\"", "2: admin_tls_cert and admin_tls_key belong together"},
      {"admin_tls_key = \"a.pem\"", "2: admin_tls_cert and admin_tls_key belong together"},
      {"admin_token = \"short\"", "2: admin_token has 5 characters and needs at least 16"},
      {"tls_cert = \"c.pem\"", "2: tls_cert and tls_key belong together"},
      {"tls_key = \"k.pem\"", "2: tls_cert and tls_key belong together"},
      {"upstream_ca = \"ca.pem\"", "2: upstream_ca is set but upstream is not https://"},
      {"listen = \"127.0.0.1:9090\"", "1: upstream is the gateway's own listen address"},
      {"listen = \"0.0.0.0:9090\"", "1: upstream is the gateway's own listen address"},
      {"listen = \"[::]:9090\"", "1: upstream is the gateway's own listen address"},
      {"admin = \"127.0.0.1:9090\"", "1: upstream is the gateway's own admin address"},
      {"[[route]]\npath = \"/a\"\nupstream = \"http://127.0.0.1:8080\"",
       "4: upstream is the gateway's own listen address"},
      {"[[route]]\npath = \"/a\"\nupstream = \"http://localhost:8081\"",
       "4: upstream is the gateway's own admin address"},
      {"[[route]]\npath = \"/a\"\nupstream = \"http://api/v1\"",
       "4: upstream: \"http://api/v1\" is not an upstream: expected no path"},
      {"[[route]]\npath = \"/a\"\nupstream = 9090", "4: upstream: "},
      {"admin = \"127.0.0.1:8080\"", "2: admin and listen are the same address"},
      {"store = \"journal:data\"\naccess_log = \"data/./audit.log\"",
       "3: access_log and the audit log are one file, data/./audit.log"},
      {"store = \"memory:\"\nrequire_durability = \"process\"", "3: require_durability = \"process\" cannot be met"},
      {"[[route]]\npath = \"/*\"\n[[route]]\npath = \"/v1/*\"",
       "5: route /v1/* is never reached: route /* comes first"},
  };
  for (const BadConfig& bad : cases) expect_refused(bad);
}

TEST(UnsafeCombinations, WithoutAnUpstreamThereIsNothingToProtect) {
  const auto config = parse_config("listen = \"127.0.0.1:1\"", "bad.toml");
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(config.fault().message, testing::StartsWith("bad.toml:1: upstream is missing"));
}

TEST(UnsafeCombinations, OfSeveralRoutesAreAllReported) {
  const auto config = parse_config(R"(upstream = "http://127.0.0.1:9090"
[[route]]
path = "/a"
scope = []
[[route]]
path = "/b"
wait = "5m"
)",
                                   "bad.toml");
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(config.fault().message, HasSubstr("bad.toml:4: scope is empty"));
  EXPECT_THAT(config.fault().message, HasSubstr("\nbad.toml:7: wait (5m)"));
}

TEST(UnsafeCombinations, AreFoundInAConfigurationMadeByHandToo) {
  Config config;
  config.routes.push_back({"/a", "/a", *policy_by_name("classic")});
  config.routes.front().policy.lease = Millis(0);
  const std::vector<Problem> problems = problems_of(config);
  ASSERT_FALSE(problems.empty());
  EXPECT_THAT(problems.front().text, StartsWith("upstream is missing"));
  EXPECT_THAT(problems, Contains(AllOf(Field(&Problem::route, Optional(0u)),
                                       Field(&Problem::text, StartsWith("lease (0s) is too short")))));
}

TEST(SafeCombinations, AreAllowed) {
  for (const char* text : {
           "lease = \"100ms\"",
           "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"",
           "admin = \"0.0.0.0:8081\"\nadmin_token = \"0123456789abcdef\"",
           "listen = \"10.1.1.1:9090\"",
           "listen = \"[::1]:9090\"",
           "listen = \"127.0.0.1:8081\"\nadmin = \"127.0.0.2:8081\"",
           "listen = \"127.0.0.1:8081\"\nadmin = \"[::1]:8081\"",
           "store = \"memory:\"\naccess_log = \"one.log\"\naudit_log = \"two.log\"",
           "admin_token = \"0$aaaaaaaaaaaaaaaaaaaaaaaaa/aa\"",
           "[[route]]\npath = \"/odata/Products(1)/refund\"",
           "[[route]]\npath = \"/odata/%24batch\"",
           "[[route]]\npath = \"/v1/charges:cancel\"",
           "[[route]]\npath = \"/v1/*\"\n[[route]]\npath = \"/*\"",
           "[[route]]\npath = \"/*\"\nmethods = \"POST\"\n[[route]]\npath = \"/v1/*\"\nmethods = \"DELETE\"",
           "[[route]]\npath = \"/a\"\nkey_from = [\"header:X\", \"fingerprint\"]\nwindow = \"5m\"",
       }) {
    const auto config = parse_config(std::string("upstream = \"http://127.0.0.1:9090\"\n") + text, "good.toml");
    EXPECT_TRUE(config.ok()) << text << "\n" << (config.ok() ? "" : config.fault().message);
  }
}

TEST(BadIdentity, IsRefusedWithItsLine) {
  const BadConfig cases[] = {
      {"scope = \"jwt:sub\"", "2: scope = \"jwt:...\" needs jwt_keys"},
      {"scope = \"jwt:sub\"\njwt_unverified = false", "2: scope = \"jwt:...\" needs jwt_keys"},
      {"scope = \"jwt:sub\"\njwt_keys = \"file:a\"\njwt_unverified = true", "4: jwt_unverified = true and jwt_keys"},
      {"scope = \"jwt:sub\"\njwt_unverified = true\njwt_audience = \"a\"",
       "4: jwt_audience and jwt_issuer say nothing"},
      {"jwt_keys = \"file:a\"", "2: jwt_keys is set but no route has a jwt: scope"},
      {"jwt_issuer = \"a\"", "2: jwt_issuer is set but no route has a jwt: scope"},
      {"scope = \"jwt:sub\"\njwt_keys = \"jwks.json\"", "3: jwt_keys: \"jwks.json\" names no keys"},
      {"scope = \"jwt:sub\"\njwt_keys = \"file:\"", "3: jwt_keys: \"file:\" names no keys"},
      {"scope = \"jwt:sub\"\njwt_keys = \"ftp://a/b\"", "3: jwt_keys: \"ftp://a/b\" names no keys"},
      {"scope = \"client-cert\"", "2: scope = \"client-cert\" needs client_ca"},
      {"tls_cert = \"a\"\ntls_key = \"b\"\nclient_ca = \"c\"", "4: client_ca is set but no route has"},
      {"scope = \"client-cert\"\nclient_ca = \"c\"", "3: client_ca is set but the gateway serves plain HTTP"},
      {"accounts = \"accounts.toml\"", "2: accounts: \"accounts.toml\" names no file"},
      {"reauthorize = \"POST /me\"", "2: reauthorize: \"POST /me\" is not a request to the API"},
      {"reauthorize_for = \"1m\"", "2: reauthorize_for is set without reauthorize"},
      {"[[route]]\npath = \"/*\"\nmode = \"observe\"\nreauthorize = \"GET /me\"",
       "5: mode = \"observe\" replays nothing"},
  };
  for (const BadConfig& bad : cases) expect_refused(bad);
}

std::vector<std::string> warnings(const std::string& text) {
  const auto config = parse_config("upstream = \"http://127.0.0.1:9090\"\n" + text, "test.toml");
  EXPECT_TRUE(config.ok()) << text;
  return config.ok() ? warnings_of(*config) : std::vector<std::string>{};
}

TEST(Warnings, AreGivenForWhatDeservesASecondLook) {
  EXPECT_THAT(warnings(""), IsEmpty());
  EXPECT_THAT(warnings("store = \"memory:\""), ElementsAre(HasSubstr("memory: keeps nothing")));
  EXPECT_THAT(warnings("core_dumps = true"), ElementsAre(HasSubstr("a core dump holds the bodies")));
  const std::string beyond = "admin = \"0.0.0.0:8081\"\nadmin_token = \"0123456789abcdef\"\n";
  EXPECT_THAT(warnings(beyond), ElementsAre(HasSubstr("travels in clear")));
  EXPECT_THAT(warnings(beyond + "admin_tls_cert = \"a.pem\"\nadmin_tls_key = \"a.pem\"\n"), IsEmpty());
  EXPECT_THAT(warnings("scope = \"global\""), ElementsAre(HasSubstr("every other caller's answers")));
  EXPECT_THAT(warnings("scope = \"jwt:sub\"\njwt_unverified = true"), ElementsAre(HasSubstr("without verifying it")));
  EXPECT_THAT(warnings("scope = \"jwt:sub\"\njwt_keys = \"file:jwks.json\""), IsEmpty());
  EXPECT_THAT(warnings("scope = \"jwt:sub\"\njwt_keys = \"https://id.test/jwks\""), IsEmpty());
  EXPECT_THAT(warnings("scope = \"jwt:sub\"\njwt_keys = \"http://127.0.0.1:1/jwks\""), IsEmpty());
  EXPECT_THAT(warnings("scope = \"jwt:sub\"\njwt_keys = \"http://id.test/jwks\""),
              ElementsAre(HasSubstr("plain HTTP")));
  EXPECT_THAT(warnings("[[route]]\npath = \"/a\"\non_store_error = \"bypass\""),
              ElementsAre(testing::AllOf(HasSubstr("route /a: "), HasSubstr("unprotected"))));
}

} // namespace
} // namespace oncekey
