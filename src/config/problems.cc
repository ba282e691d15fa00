#include "config/problems.h"

#include "base/durations.h"
#include "config/routes.h"
#include "core/record_codec.h"

#include <oncekey/headers.h>

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace oncekey {
namespace {

// Quick enough for tests, and still ten times what a store's group commit takes on a slow disk.
constexpr Millis kShortestLease{100};
// Long enough that guessing a token over the network is hopeless.
constexpr std::size_t kShortestToken = 16;

bool uses_fingerprint_as_key(const Policy& policy) {
  return std::any_of(policy.key_from.begin(), policy.key_from.end(),
                     [](const KeySource& source) { return source.kind == KeySource::Kind::fingerprint; });
}

bool has_scope(const Policy& policy, ScopeSource::Kind kind) {
  return std::any_of(policy.scope.begin(), policy.scope.end(),
                     [kind](const ScopeSource& source) { return source.kind == kind; });
}

// Each upstream costs metrics and, on every thread, connections.
constexpr std::size_t kMostUpstreams = 64;

void check_upstreams(const Config& config, std::vector<Problem>& out) {
  const auto check = [&](const Url& url, std::optional<std::size_t> route) {
    if (url.port == config.listen.port && reaches(url.host, config.listen))
      out.push_back({route,
                     {"upstream", "listen"},
                     "upstream is the gateway's own listen address: every request would come back to it in a loop"});
    if (url.port == config.admin.port && reaches(url.host, config.admin))
      out.push_back({route,
                     {"upstream", "admin"},
                     "upstream is the gateway's own admin address: clients would reach the operator's interface"});
  };
  const bool at_the_top = !config.upstream.host.empty();
  const bool in_a_route = std::any_of(config.routes.begin(), config.routes.end(),
                                      [](const Route& route) { return route.upstream.has_value(); });
  if (at_the_top) check(config.upstream, std::nullopt);
  if (!at_the_top && !in_a_route)
    out.push_back({std::nullopt,
                   {"upstream"},
                   "upstream is missing: say which API to protect, as in upstream = \"http://127.0.0.1:9090\"",
                   "is missing: say which API to protect, as in --upstream http://127.0.0.1:9090"});
  for (std::size_t index = 0; index < config.routes.size(); ++index) {
    const Route& route = config.routes[index];
    if (route.upstream) {
      check(*route.upstream, index);
    } else if (!at_the_top && in_a_route) {
      out.push_back({index,
                     {"path"},
                     fmt::format("route {} has no upstream, and there is none at the top: set upstream in one of them",
                                 route.path)});
    }
  }
  const std::vector<Url> all = upstreams_of(config);
  if (all.size() > kMostUpstreams)
    out.push_back(
        {std::nullopt,
         {"upstream"},
         fmt::format("there are {} different upstreams: at most {} are possible, because each has connections "
                     "and metrics of its own; run several gateways",
                     all.size(), kMostUpstreams)});
  if (!config.upstream_ca.empty() && std::none_of(all.begin(), all.end(), [](const Url& url) { return url.tls; }))
    out.push_back(
        {std::nullopt, {"upstream_ca"}, "upstream_ca is set but upstream is not https://: nothing would be verified"});
}

void check_listeners(const Config& config, std::vector<Problem>& out) {
  const auto add = [&](std::vector<std::string> settings, std::string text, std::string text_for_flags = {}) {
    out.push_back({std::nullopt, std::move(settings), std::move(text), std::move(text_for_flags)});
  };
  if (config.listen.port != 0 && config.listen.port == config.admin.port && reaches(config.listen.host, config.admin))
    add({"admin", "listen"}, "admin and listen are the same address: give the admin listener a port of its own");
  if (config.outbox && config.outbox_token.empty() && !is_loopback(*config.outbox))
    add({"outbox"},
        "outbox is on an address that others can reach, and outbox_token is not set: any machine that "
        "reaches it could send messages in your name; set outbox_token, or listen on 127.0.0.1");
  if (!config.outbox_token.empty() && config.outbox_token.size() < kShortestToken)
    add({"outbox_token"},
        fmt::format("outbox_token has fewer than {} characters and could be guessed", kShortestToken));
  if (config.outbox && config.destinations.empty())
    add({"outbox"}, "outbox is set and there is no [[destination]]: messages would have nowhere to go");
  if (!config.outbox && !config.destinations.empty())
    add({"destination"},
        "there are destinations and no outbox: say where to take their messages, as in outbox = "
        "\"127.0.0.1:8082\"");
  if (config.admin_token.empty() && !is_loopback(config.admin))
    add({"admin"}, fmt::format("admin is on {}, which others can reach, and admin_token is not set: say which token "
                               "operators send from there; set admin_token or listen on 127.0.0.1",
                               config.admin.host));
  if (!config.admin_token.empty() && config.admin_token.size() < kShortestToken)
    add({"admin_token"},
        fmt::format("admin_token has {} characters and needs at least {}: `openssl rand -hex 16` makes "
                    "a good one",
                    config.admin_token.size(), kShortestToken));
  if (config.tls_cert.empty() != config.tls_key.empty())
    add({"tls_cert", "tls_key"},
        "tls_cert and tls_key belong together: set both to serve TLS, neither to serve plain HTTP");
  if (config.admin_tls_cert.empty() != config.admin_tls_key.empty())
    add({"admin_tls_cert", "admin_tls_key"},
        "admin_tls_cert and admin_tls_key belong together: set both to serve TLS to operators, neither for plain HTTP");
  if (!config.client_ca.empty() && config.tls_cert.empty())
    add({"client_ca"}, "client_ca is set but the gateway serves plain HTTP: set tls_cert and tls_key as well");
  if (config.require_durability && config.store.starts_with("memory:"))
    add({"require_durability"},
        fmt::format("require_durability = \"{}\" cannot be met by memory:, which keeps nothing; "
                    "use rocksdb:PATH",
                    *config.require_durability));
}

// The same for the top of the file and for a route.
void check_rates(const RateLimits& rates, const Limits& limits, std::optional<std::size_t> route,
                 std::vector<Problem>& out) {
  if (rates.burst > 0 && rates.rate <= 0)
    out.push_back({route,
                   {"burst"},
                   "burst is set without rate beside it: say how fast requests may come, as in rate = \"100/s\""});
  if (rates.test_burst > 0 && rates.test_rate <= 0)
    out.push_back(
        {route,
         {"test_burst"},
         "test_burst is set without test_rate beside it: say how fast requests may come, as in test_rate = \"25/s\""});
  if (limits.max_in_flight > 0 && rates.max_in_flight > limits.max_in_flight)
    out.push_back({route,
                   {"max_in_flight", "limits.max_in_flight"},
                   fmt::format("max_in_flight ({}), which is for one account, is more than limits.max_in_flight ({}), "
                               "which is for all together: it would never be reached",
                               rates.max_in_flight, limits.max_in_flight)});
}

// As defaults of all routes these may stand where a route has no use for them; one route must have.
void check_identity(const Config& config, std::vector<Problem>& out) {
  const auto none_has = [&](ScopeSource::Kind kind) {
    return std::none_of(config.routes.begin(), config.routes.end(),
                        [kind](const Route& route) { return has_scope(route.policy, kind); });
  };
  for (const Route& route : config.routes) {
    const TokenRules& tokens = route.policy.tokens;
    const char* const set = !tokens.keys.empty()        ? "jwt_keys"
                            : !tokens.audiences.empty() ? "jwt_audience"
                            : !tokens.issuers.empty()   ? "jwt_issuer"
                            : tokens.unverified         ? "jwt_unverified"
                                                        : nullptr;
    if (set == nullptr || !none_has(ScopeSource::Kind::jwt)) continue;
    out.push_back({std::nullopt,
                   {set},
                   fmt::format("{} is set but no route has a jwt: scope: no token would be verified; write scope = "
                               "\"jwt:sub\", or leave it out",
                               set)});
    break;
  }
  if (!config.client_ca.empty() && none_has(ScopeSource::Kind::client_cert))
    out.push_back({std::nullopt,
                   {"client_ca"},
                   "client_ca is set but no route has scope = \"client-cert\": no certificate would be used"});
}

void check_limits(const Config& config, std::vector<Problem>& out) {
  check_rates(config.rates, config.limits, std::nullopt, out);
  if (config.address_rate.burst > 0 && config.address_rate.per_second <= 0)
    out.push_back({std::nullopt,
                   {"address_burst"},
                   "address_burst is set without address_rate beside it: say how fast requests may come, as in "
                   "address_rate = \"100/s\""});
  if (config.limits.max_connections_per_address > config.limits.max_connections)
    out.push_back({std::nullopt,
                   {"limits.max_connections_per_address", "limits.max_connections"},
                   fmt::format("limits.max_connections_per_address ({}) is more than limits.max_connections ({}): it "
                               "would never be reached",
                               config.limits.max_connections_per_address, config.limits.max_connections)});
  if (config.limits.max_in_flight > config.limits.max_upstream_connections)
    out.push_back({std::nullopt,
                   {"limits.max_in_flight", "limits.max_upstream_connections"},
                   fmt::format("limits.max_in_flight ({}) is more than limits.max_upstream_connections ({}): it would "
                               "never be reached; raise that one first",
                               config.limits.max_in_flight, config.limits.max_upstream_connections)});
  const auto exempts = [](const Route& route) { return route.policy.rate_exempts_replays; };
  const auto limited = [](const Route& route) { return route.policy.rates.any(); };
  if (std::any_of(config.routes.begin(), config.routes.end(), exempts) && !config.rates.any() &&
      std::none_of(config.routes.begin(), config.routes.end(), limited))
    out.push_back({std::nullopt,
                   {"rate_exempts_replays"},
                   "rate_exempts_replays is set but nothing is limited: set rate or max_in_flight, or leave it out"});
}

class RouteChecks {
 public:
  RouteChecks(const Config& config, std::size_t index, std::vector<Problem>& out)
      : config_(config), policy_(config.routes[index].policy), index_(index), out_(out) {}

  void run() {
    times();
    key();
    scope();
    tokens();
    reauthorization();
    fingerprint();
    recovery();
    sizes();
    limits();
    reachable();
  }

 private:
  void add(std::vector<std::string> settings, std::string text) {
    out_.push_back({index_, std::move(settings), std::move(text)});
  }

  // A record that expires while its owner may still be at work lets a second request execute beside the first.
  void outlives_the_work(const char* setting, Millis kept_for) {
    if (kept_for < policy_.lease) {
      add({setting, "lease"},
          fmt::format("{} ({}) is shorter than lease ({}): the key would be forgotten while its first request "
                      "still runs, and a retry would execute a second time",
                      setting, format_duration(kept_for), format_duration(policy_.lease)));
    } else if (kept_for < policy_.upstream_timeout + policy_.lease) {
      add({setting, "upstream_timeout", "lease"},
          fmt::format("{} ({}) is shorter than upstream_timeout plus lease ({} + {}): the key could be "
                      "forgotten while its first request still runs, and a retry would execute a second time",
                      setting, format_duration(kept_for), format_duration(policy_.upstream_timeout),
                      format_duration(policy_.lease)));
    }
  }

  void times() {
    if (policy_.lease < kShortestLease)
      add({"lease"}, fmt::format("lease ({}) is too short: it must be at least {}, or it would run out between two "
                                 "renewals",
                                 format_duration(policy_.lease), format_duration(kShortestLease)));
    if (policy_.upstream_timeout <= Millis(0))
      add({"upstream_timeout"}, "upstream_timeout must be longer than zero: no call could ever succeed");
    outlives_the_work("retention", policy_.retention);
    if (policy_.wait > policy_.upstream_timeout)
      add({"wait", "upstream_timeout"},
          fmt::format("wait ({}) is longer than upstream_timeout ({}): the first request is over by then, one "
                      "way or the other",
                      format_duration(policy_.wait), format_duration(policy_.upstream_timeout)));
    if (policy_.wait > Millis(0) && policy_.max_waiters == 0)
      add({"max_waiters", "wait"},
          "max_waiters is 0, so no request can wait, but wait is set: raise one or drop the other");
  }

  void key() {
    if (policy_.methods.empty())
      add({"methods"}, "methods is empty: no request would be protected; leave the route out");
    if (policy_.strict && policy_.key_syntax != KeySyntax::structured_string)
      add({"strict", "key_syntax"},
          "strict = true needs key_syntax = \"structured-string\": every other syntax takes keys as they are sent; set "
          "it, or leave strict out");
    if (policy_.key_from.empty()) add({"key_from"}, "key_from is empty: no request would ever have a key");
    if (uses_fingerprint_as_key(policy_)) {
      if (policy_.window <= Millis(0))
        add({"window", "key_from"},
            "key_from = \"fingerprint\" needs a window longer than zero, as in window = \"5m\": for how long do "
            "identical requests count as one?");
      else
        outlives_the_work("window", policy_.window);
      if (policy_.key == MissingKey::required)
        add({"key", "key_from"},
            "key = \"required\" and key_from = \"fingerprint\" contradict each other: with a fingerprint "
            "no key is ever missing; set key = \"pass\" or take \"fingerprint\" out");
      if (policy_.key_from.back().kind != KeySource::Kind::fingerprint)
        add({"key_from"},
            "\"fingerprint\" must come last in key_from: it always finds a key, so what follows is never "
            "asked");
    } else if (policy_.window != Millis(0)) {
      add({"window"},
          "window is set but key_from has no \"fingerprint\", the only source it is for; a client's own key "
          "lives for the retention");
    }
  }

  void scope() {
    if (policy_.scope.empty()) {
      add({"scope"},
          "scope is empty: one tenant's answers would be replayed to another; name where the account comes "
          "from, as in \"header:Authorization\", or write \"global\" if all callers are one");
      return;
    }
    if (std::all_of(policy_.scope.begin(), policy_.scope.end(),
                    [](const ScopeSource& source) { return source.optional; })) {
      add({"scope"},
          "every part of scope is optional: requests without any of them would share one scope; take the ? "
          "off one part");
      return;
    }
    if (policy_.scope.size() > 1 && has_scope(policy_, ScopeSource::Kind::global))
      add({"scope"},
          "\"global\" cannot be combined: it says that all callers are one, the other parts that they are "
          "not");
    if (policy_.ignore_host && has_scope(policy_, ScopeSource::Kind::host))
      add({"ignore_host", "scope"},
          "ignore_host = true and \"host\" in scope contradict each other: are the names one API or several tenants? "
          "Keep the one that is true");
    const bool named = std::any_of(policy_.scope.begin(), policy_.scope.end(), [](const ScopeSource& source) {
      return source.kind != ScopeSource::Kind::host && !source.optional;
    });
    if (has_scope(policy_, ScopeSource::Kind::host) && !named)
      add({"scope"},
          "\"host\" alone lets every caller of a host name replay the answers of all others; add where the account "
          "comes "
          "from, as in [\"header:Authorization\", \"host\"]");
  }

  void tokens() {
    const TokenRules& tokens = policy_.tokens;
    if (has_scope(policy_, ScopeSource::Kind::client_cert) && config_.client_ca.empty())
      add({"scope"},
          "scope = \"client-cert\" needs client_ca, the PEM file of the authority that issues the clients' "
          "certificates");
    if (!has_scope(policy_, ScopeSource::Kind::jwt)) return;
    if (tokens.keys.empty() && !tokens.unverified)
      add({"scope"},
          "scope = \"jwt:...\" needs jwt_keys, as in jwt_keys = \"file:jwks.json\" or the URL of a JWKS: a forged "
          "token "
          "would read, block and use up another account's keys; write jwt_unverified = true if something in front of "
          "the gateway verifies every token");
    if (!tokens.keys.empty() && tokens.unverified)
      add({"jwt_unverified", "jwt_keys"},
          "jwt_unverified = true and jwt_keys contradict each other: leave out jwt_unverified to verify tokens");
    if (tokens.unverified && (!tokens.audiences.empty() || !tokens.issuers.empty()))
      add({"jwt_audience", "jwt_issuer", "jwt_unverified"},
          "jwt_audience and jwt_issuer say nothing about tokens that are not verified: leave them out, or set "
          "jwt_keys");
  }

  void reauthorization() {
    if (policy_.reauthorize_for > Millis(0) && !policy_.reauthorize)
      add({"reauthorize_for"}, "reauthorize_for is set without reauthorize: which question is remembered?");
    if (policy_.reauthorize && policy_.mode == Mode::observe)
      add({"reauthorize", "mode"},
          "mode = \"observe\" replays nothing, so reauthorize would never be asked: leave it out");
  }

  void fingerprint() {
    if (!policy_.fingerprint_ignore.empty() && policy_.fingerprint != FingerprintMode::canonical)
      add({"fingerprint_ignore"},
          "fingerprint_ignore needs fingerprint = \"canonical\": members can only be left out of "
          "a body that is read as JSON");
  }

  void recovery() {
    if (policy_.on_abandoned == OnAbandoned::probe && !policy_.probe)
      add({"on_abandoned"},
          "on_abandoned = \"probe\" needs a probe to ask with, as in probe = \"GET "
          "/v1/charges?key={key}\"");
    if (policy_.on_abandoned != OnAbandoned::probe && policy_.probe)
      add({"probe"}, "probe is set but on_abandoned is not \"probe\": it would never be asked");
    const bool from_fingerprint = std::any_of(policy_.key_from.begin(), policy_.key_from.end(), [](const KeySource& s) {
      return s.kind == KeySource::Kind::fingerprint;
    });
    if (policy_.probe && from_fingerprint)
      add({"probe", "key_from"},
          "probe cannot ask for a key that is made of the fingerprint: the upstream does not know it");
  }

  // A body that can never be held would be refused as overload, for ever.
  void sizes() {
    const std::uint64_t most = config_.limits.max_buffered_bytes;
    if (policy_.max_request_body == 0) add({"max_request_body"}, "max_request_body is 0: every body would be refused");
    if (policy_.max_request_body > most)
      add({"max_request_body", "limits.max_buffered_bytes"},
          "max_request_body is larger than limits.max_buffered_bytes: such a body is never let in");
    if (policy_.max_stored_body > kBodyBytesMax)
      add({"max_stored_body"}, "max_stored_body is more than 1GiB: a record holds no more");
    if (policy_.max_stored_body > most)
      add({"max_stored_body", "limits.max_buffered_bytes"},
          "max_stored_body is larger than limits.max_buffered_bytes: such an answer is never held");
  }

  void limits() {
    check_rates(policy_.rates, config_.limits, index_, out_);
    const bool observing = policy_.mode == Mode::observe;
    if (observing && policy_.rates.any())
      add({"rate", "test_rate", "max_in_flight", "mode"},
          "mode = \"observe\" forwards everything, so the limits of this route would not be kept: leave them out until "
          "it enforces");
    if (observing && policy_.respond_async)
      add({"respond_async", "mode"},
          "mode = \"observe\" keeps no answers, so respond_async has nothing to fetch later: leave it out until the "
          "route enforces");
    if (observing && policy_.compress)
      add({"compress", "mode"},
          "mode = \"observe\" passes answers on as they come, so compress would do nothing: leave it out until the "
          "route "
          "enforces");
    if (policy_.respond_async && uses_fingerprint_as_key(policy_))
      add({"respond_async", "key_from"},
          "respond_async needs keys that clients choose: the status URL is made of the key, and one made of the "
          "fingerprint has no single owner");
  }

  void reachable() {
    for (std::size_t earlier = 0; earlier < index_; ++earlier) {
      if (!policy_.methods.empty() && shadows(config_.routes[earlier], config_.routes[index_])) {
        add({"path"},
            fmt::format("route {} is never reached: route {} comes first and matches all of its requests; put "
                        "the narrower one first",
                        config_.routes[index_].path, config_.routes[earlier].path));
        return;
      }
    }
  }

  const Config& config_;
  const Policy& policy_;
  std::size_t index_;
  std::vector<Problem>& out_;
};

} // namespace

std::vector<Problem> problems_of(const Config& config) {
  std::vector<Problem> problems;
  check_upstreams(config, problems);
  check_listeners(config, problems);
  check_limits(config, problems);
  check_identity(config, problems);
  for (std::size_t index = 0; index < config.routes.size(); ++index) RouteChecks(config, index, problems).run();
  return problems;
}

Status check_config(const Config& config) {
  std::string message;
  for (const Problem& problem : problems_of(config)) {
    if (!message.empty()) message += '\n';
    if (problem.route) message += fmt::format("route {}: ", config.routes[*problem.route].path);
    message += problem.text;
  }
  if (message.empty()) return ok_status();
  return invalid(std::move(message));
}

std::vector<std::string> warnings_of(const Config& config) {
  std::vector<std::string> warnings;
  if (config.store.starts_with("memory:"))
    warnings.push_back("store memory: keeps nothing: after a restart every retry executes again; for tests and demos");
  if (!is_loopback(config.admin) && config.admin_tls_cert.empty())
    warnings.push_back(
        fmt::format("admin is on {} without TLS: the admin token travels in clear, and everyone on the "
                    "way can read it; set admin_tls_cert and admin_tls_key",
                    config.admin.host));
  if (config.core_dumps)
    warnings.push_back("core_dumps = true: a core dump holds the bodies, keys and tokens that were in memory");
  const std::vector<Url> upstreams = upstreams_of(config);
  for (const Webhook& webhook : config.webhooks) {
    const Endpoint& endpoint = webhook.endpoint;
    const bool on_an_upstream = std::any_of(upstreams.begin(), upstreams.end(),
                                            [&](const Url& url) { return url.authority == endpoint.url.authority; });
    if (on_an_upstream && endpoint.authorization.empty())
      warnings.push_back(
          fmt::format("webhook {}: deliver_to is on the upstream, where clients of the gateway can post "
                      "too: let the receiver refuse what has no Oncekey-Attempt, which the gateway "
                      "removes from what clients send, or set authorization",
                      webhook.path));
  }
  for (const Route& route : config.routes) {
    const Policy& policy = route.policy;
    const auto add = [&](std::string_view text) { warnings.push_back(fmt::format("route {}: {}", route.name, text)); };
    if (policy.on_store_error == OnStoreError::bypass)
      add("on_store_error = \"bypass\" executes keyed requests unprotected while the store is down; retries then may "
          "execute twice");
    if (has_scope(policy, ScopeSource::Kind::global))
      add("scope = \"global\" lets every caller replay every other caller's answers; right only when all callers are "
          "one");
    if (policy.tokens.unverified && has_scope(policy, ScopeSource::Kind::jwt))
      add("scope = \"jwt:...\" with jwt_unverified reads the token without verifying it; something in front of the "
          "gateway must, or anyone can name any account: read its stored answers, block its keys and poison them with "
          "answers of their own");
    if (policy.tokens.keys.starts_with("http://")) {
      const auto url = parse_url(policy.tokens.keys);
      if (url && !is_loopback({url->host, url->port}))
        add("jwt_keys is fetched over plain HTTP: anyone on the way can put keys of their own in its place; use "
            "https://");
    }
  }
  return warnings;
}

} // namespace oncekey
