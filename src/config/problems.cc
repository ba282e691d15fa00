#include "config/problems.h"

#include "base/durations.h"
#include "base/url.h"
#include "core/record_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

namespace oncekey {
namespace {

// Short enough for tests, and still ten times the length of a group commit on a slow disk.
constexpr Millis kShortestLease{100};
// Long enough that guessing a token over the network is hopeless.
constexpr std::size_t kShortestToken = 16;
// Each upstream costs metrics and, on every thread, connections.
constexpr std::size_t kMostUpstreams = 64;

// Where a file is or will be made, symbolic links followed: also one that points to a file that is not there yet.
std::filesystem::path real_path(std::filesystem::path path) {
  constexpr int kLinksFollowedMax = 40; // as the kernel follows
  std::error_code error;
  for (int i = 0; i < kLinksFollowedMax && std::filesystem::is_symlink(path, error); ++i)
    path = path.parent_path() / std::filesystem::read_symlink(path, error);
  const auto whole = std::filesystem::weakly_canonical(std::filesystem::absolute(path, error), error);
  return error ? path.lexically_normal() : whole;
}

// The checks of the whole gateway, and of one route of it.
class Checks {
 public:
  explicit Checks(const Config& config) : config_(config) {}

  std::vector<Problem> all() {
    upstreams();
    listeners();
    limits();
    identity();
    for (std::size_t index = 0; index < config_.routes.size(); ++index) {
      route_ = index;
      const Policy& policy = config_.routes[index].policy;
      times(policy);
      key(policy);
      scope(policy);
      tokens(policy);
      answers(policy);
      sizes(policy);
      modes(policy);
      reachable(config_.routes[index]);
    }
    return std::move(out_);
  }

 private:
  template <class... Args>
  void add(std::vector<std::string> settings, fmt::format_string<Args...> text, Args&&... args) {
    out_.push_back({route_, std::move(settings), fmt::format(text, std::forward<Args>(args)...)});
  }

  template <class Does>
  bool any_route(Does does) const {
    return std::any_of(config_.routes.begin(), config_.routes.end(), does);
  }

  void upstream(const Url& url) {
    if (url.port == config_.listen.port && reaches(url.host, config_.listen))
      add({"upstream", "listen"},
          "upstream is the gateway's own listen address: every request would come back to it in a loop");
    if (url.port == config_.admin.port && reaches(url.host, config_.admin))
      add({"upstream", "admin"},
          "upstream is the gateway's own admin address: clients would reach the operator's interface");
  }

  void upstreams() {
    const bool at_the_top = !config_.upstream.host.empty();
    const bool in_a_route = any_route([](const Route& route) { return route.upstream.has_value(); });
    if (at_the_top) upstream(config_.upstream);
    if (!at_the_top && !in_a_route)
      out_.push_back({route_,
                      {"upstream"},
                      "upstream is missing: say which API to protect, as in upstream = \"http://127.0.0.1:9090\"",
                      "is missing: say which API to protect, as in --upstream http://127.0.0.1:9090"});
    for (std::size_t index = 0; index < config_.routes.size(); ++index) {
      route_ = index;
      const Route& route = config_.routes[index];
      if (route.upstream) {
        upstream(*route.upstream);
      } else if (!at_the_top && in_a_route) {
        add({"path"}, "route {} has no upstream, and there is none at the top: set upstream in one of them",
            route.path);
      }
    }
    route_.reset();
    const std::vector<Url> all = upstreams_of(config_);
    if (all.size() > kMostUpstreams)
      add({"upstream"},
          "there are {} different upstreams: at most {} are possible, because each has connections and metrics of its "
          "own; run several gateways",
          all.size(), kMostUpstreams);
    if (!config_.upstream_ca.empty() && std::none_of(all.begin(), all.end(), [](const Url& url) { return url.tls; }))
      add({"upstream_ca"}, "upstream_ca is set but upstream is not https://: nothing would be verified");
  }

  struct NamedAddress {
    const char* setting;
    const Address& address;
  };
  void ports(const NamedAddress& one, const NamedAddress& other) {
    if (!collide(one.address, other.address)) return;
    const auto text = [](const Address& address) { return host_and_port(address.host, address.port); };
    if (one.address.host == other.address.host)
      add({one.setting, other.setting}, "{0} and {1} are the same address: give the {0} listener a port of its own",
          one.setting, other.setting);
    else
      add({one.setting, other.setting},
          "{0} ({2}) and {1} ({3}) take the same port of one address: give the {0} listener a port of its own",
          one.setting, other.setting, text(one.address), text(other.address));
  }

  // Two writers in one file: its lines would be no chain, and no access log either.
  void logs() {
    const std::string& access_log = config_.access_log;
    constexpr std::string_view kWithFolder = "journal:";
    const bool beside_store = config_.audit_log.empty() && config_.store.starts_with(kWithFolder);
    const std::string audit_log =
        beside_store ? config_.store.substr(kWithFolder.size()) + "/audit.log" : config_.audit_log;
    if (access_log == "off" || access_log == "-" || audit_log == "off" || audit_log.empty()) return;
    if (real_path(access_log) != real_path(audit_log)) return;
    add({"access_log", "audit_log"},
        "access_log and the audit log are one file, {}: its lines would break the audit log's chain; give access_log "
        "another path",
        access_log);
  }

  void listeners() {
    const Config& config = config_;
    ports({"admin", config.admin}, {"listen", config.listen});
    if (config.outbox) {
      ports({"outbox", *config.outbox}, {"listen", config.listen});
      ports({"outbox", *config.outbox}, {"admin", config.admin});
    }
    logs();
    if (config.outbox && config.outbox_token.empty() && !is_loopback(*config.outbox))
      add({"outbox"},
          "outbox is on an address that others can reach, and outbox_token is not set: any machine that reaches it "
          "could send messages in your name; set outbox_token, or listen on 127.0.0.1");
    if (!config.outbox_token.empty() && config.outbox_token.size() < kShortestToken)
      add({"outbox_token"}, "outbox_token has fewer than {} characters and could be guessed", kShortestToken);
    if (config.outbox && config.destinations.empty())
      add({"outbox"}, "outbox is set and there is no [[destination]]: messages would have nowhere to go");
    if (!config.outbox && !config.destinations.empty())
      add({"destination"},
          "there are destinations and no outbox: say where to take their messages, as in outbox = \"127.0.0.1:8082\"");
    if (config.admin_token.empty() && !is_loopback(config.admin))
      add({"admin"},
          "admin is on {}, which others can reach, and admin_token is not set: say which token operators send from "
          "there; set admin_token or listen on 127.0.0.1",
          config.admin.host);
    if (!config.admin_token.empty() && config.admin_token.size() < kShortestToken)
      add({"admin_token"},
          "admin_token has {} characters and needs at least {}: `openssl rand -hex 16` makes a good one",
          config.admin_token.size(), kShortestToken);
    if (!config.admin_read_token.empty() && config.admin_read_token.size() < kShortestToken)
      add({"admin_read_token"},
          "admin_read_token has {} characters and needs at least {}: `openssl rand -hex 16` makes a good one",
          config.admin_read_token.size(), kShortestToken);
    if (!config.admin_read_token.empty() && config.admin_read_token == config.admin_token)
      add({"admin_read_token", "admin_token"},
          "admin_read_token and admin_token are the same: readers could act; give them different tokens");
    if (!config.admin_client_ca.empty() && config.admin_tls_cert.empty())
      add({"admin_client_ca"},
          "admin_client_ca is set but the admin listener serves plain HTTP: set admin_tls_cert and admin_tls_key as "
          "well");
    if (!config.admin_operators.empty() && config.admin_client_ca.empty())
      add({"admin_operators"},
          "admin_operators names certificates, and admin_client_ca does not say who issues them: set it as well");
    if (config.tls_cert.empty() != config.tls_key.empty())
      add({"tls_cert", "tls_key"},
          "tls_cert and tls_key belong together: set both to serve TLS, neither to serve plain HTTP");
    if (config.admin_tls_cert.empty() != config.admin_tls_key.empty())
      add({"admin_tls_cert", "admin_tls_key"},
          "admin_tls_cert and admin_tls_key belong together: set both to serve TLS to operators, neither for plain "
          "HTTP");
    if (!config.client_ca.empty() && config.tls_cert.empty())
      add({"client_ca"}, "client_ca is set but the gateway serves plain HTTP: set tls_cert and tls_key as well");
    if (config.require_durability && config.store.starts_with("memory:"))
      add({"require_durability"},
          "require_durability = \"{}\" cannot be met by memory:, which keeps nothing; use journal:PATH",
          *config.require_durability);
  }

  void burst_without_rate(const std::string& prefix, double burst, double rate, std::string_view example) {
    if (burst <= 0 || rate > 0) return;
    add({prefix + "burst"},
        "{0}burst is set without {0}rate beside it: say how fast requests may come, as in {0}rate = \"{1}/s\"", prefix,
        example);
  }

  // Called for the top of the file and for each route.
  void rates(const RateLimits& rates) {
    burst_without_rate("", rates.burst, rates.rate, "100");
    burst_without_rate("test_", rates.test_burst, rates.test_rate, "25");
    if (config_.limits.max_in_flight > 0 && rates.max_in_flight > config_.limits.max_in_flight)
      add({"max_in_flight", "limits.max_in_flight"},
          "max_in_flight ({}), which is for one account, is more than limits.max_in_flight ({}), which is for all "
          "together: it would never be reached",
          rates.max_in_flight, config_.limits.max_in_flight);
  }

  void limits() {
    const Limits& limits = config_.limits;
    rates(config_.rates);
    burst_without_rate("address_", config_.address_rate.burst, config_.address_rate.per_second, "100");
    if (limits.max_connections_per_address > limits.max_connections)
      add({"limits.max_connections_per_address", "limits.max_connections"},
          "limits.max_connections_per_address ({}) is more than limits.max_connections ({}): it would never be reached",
          limits.max_connections_per_address, limits.max_connections);
    if (limits.max_in_flight > limits.max_upstream_connections)
      add({"limits.max_in_flight", "limits.max_upstream_connections"},
          "limits.max_in_flight ({}) is more than limits.max_upstream_connections ({}): it would never be reached; "
          "raise that one first",
          limits.max_in_flight, limits.max_upstream_connections);
    if (any_route([](const Route& route) { return route.policy.rate_exempts_replays; }) && !config_.rates.any() &&
        !any_route([](const Route& route) { return route.policy.rates.any(); }))
      add({"rate_exempts_replays"},
          "rate_exempts_replays is set but nothing is limited: set rate or max_in_flight, or leave it out");
  }

  // A default of all routes may be of no use to some of them, but at least one route must use it.
  void identity() {
    const auto any_has = [&](ScopeSource::Kind kind) {
      return any_route([kind](const Route& route) { return has_scope(route.policy, kind); });
    };
    for (const Route& route : config_.routes) {
      const TokenRules& tokens = route.policy.tokens;
      const char* const set = !tokens.keys.empty()        ? "jwt_keys"
                              : !tokens.audiences.empty() ? "jwt_audience"
                              : !tokens.issuers.empty()   ? "jwt_issuer"
                              : tokens.unverified         ? "jwt_unverified"
                                                          : nullptr;
      if (set == nullptr || any_has(ScopeSource::Kind::jwt)) continue;
      add({set},
          "{} is set but no route has a jwt: scope: no token would be verified; write scope = \"jwt:sub\", or leave it "
          "out",
          set);
      break;
    }
    if (!config_.client_ca.empty() && !any_has(ScopeSource::Kind::client_cert))
      add({"client_ca"}, "client_ca is set but no route has scope = \"client-cert\": no certificate would be used");
  }

  // A record that expires while its owner may still be at work lets a second request execute beside the first.
  void outlives_the_work(const Policy& policy, const char* setting, Millis kept_for) {
    if (kept_for < policy.lease) {
      add({setting, "lease"},
          "{} ({}) is shorter than lease ({}): the key would be forgotten while its first request still runs, and a "
          "retry would execute a second time",
          setting, format_duration(kept_for), format_duration(policy.lease));
    } else if (kept_for < policy.upstream_timeout + policy.lease) {
      add({setting, "upstream_timeout", "lease"},
          "{} ({}) is shorter than upstream_timeout plus lease ({} + {}): the key could be forgotten while its first "
          "request still runs, and a retry would execute a second time",
          setting, format_duration(kept_for), format_duration(policy.upstream_timeout), format_duration(policy.lease));
    }
  }

  void times(const Policy& policy) {
    if (policy.lease < kShortestLease)
      add({"lease"}, "lease ({}) is too short: it must be at least {}, or it would run out between two renewals",
          format_duration(policy.lease), format_duration(kShortestLease));
    if (policy.upstream_timeout <= Millis(0))
      add({"upstream_timeout"}, "upstream_timeout must be longer than zero: no call could ever succeed");
    outlives_the_work(policy, "retention", policy.retention);
    if (policy.wait > policy.upstream_timeout)
      add({"wait", "upstream_timeout"},

          "wait ({}) is longer than upstream_timeout ({}): the first request is over by then, one way or the other",
          format_duration(policy.wait), format_duration(policy.upstream_timeout));
    if (policy.wait > Millis(0) && policy.max_waiters == 0)
      add({"max_waiters", "wait"},
          "max_waiters is 0, so no request can wait, but wait is set: raise one or drop the other");
  }

  void key(const Policy& policy) {
    if (policy.methods.empty())
      add({"methods"}, "methods is empty: no request would be protected; leave the route out");
    if (policy.strict && policy.key_syntax != KeySyntax::structured_string)
      add({"strict", "key_syntax"},
          "strict = true needs key_syntax = \"structured-string\": every other syntax takes keys as they are sent; set "
          "it, or leave strict out");
    if (policy.key_from.empty()) add({"key_from"}, "key_from is empty: no request would ever have a key");
    if (uses_fingerprint_as_key(policy)) {
      if (policy.window <= Millis(0))
        add({"window", "key_from"},
            "key_from = \"fingerprint\" needs a window longer than zero, as in window = \"5m\": for how long do "
            "identical requests count as one?");
      else
        outlives_the_work(policy, "window", policy.window);
      if (policy.key == MissingKey::required)
        add({"key", "key_from"},
            "key = \"required\" and key_from = \"fingerprint\" contradict each other: with a fingerprint no key is "
            "ever missing; set key = \"pass\" or take \"fingerprint\" out");
      if (policy.key_from.back().kind != KeySource::Kind::fingerprint)
        add({"key_from"},
            "\"fingerprint\" must come last in key_from: it always finds a key, so what follows is never asked");
    } else if (policy.window != Millis(0)) {
      add({"window"},
          "window is set but key_from has no \"fingerprint\", the only source it is for; a client's own key lives for "
          "the retention");
    }
  }

  void scope(const Policy& policy) {
    if (policy.scope.empty()) {
      add({"scope"},
          "scope is empty: one tenant's answers would be replayed to another; name where the account comes from, as in "
          "\"header:Authorization\", or write \"global\" if all callers are one");
      return;
    }
    if (std::all_of(policy.scope.begin(), policy.scope.end(),
                    [](const ScopeSource& source) { return source.optional; })) {
      add({"scope"},
          "every part of scope is optional: requests without any of them would share one scope; take the ? off one "
          "part");
      return;
    }
    if (policy.scope.size() > 1 && has_scope(policy, ScopeSource::Kind::global))
      add({"scope"},
          "\"global\" cannot be combined: it says that all callers are one, the other parts that they are not");
    if (policy.ignore_host && has_scope(policy, ScopeSource::Kind::host))
      add({"ignore_host", "scope"},
          "ignore_host = true and \"host\" in scope contradict each other: are the names one API or several tenants? "
          "Keep the one that is true");
    const bool named = std::any_of(policy.scope.begin(), policy.scope.end(), [](const ScopeSource& source) {
      return source.kind != ScopeSource::Kind::host && !source.optional;
    });
    if (has_scope(policy, ScopeSource::Kind::host) && !named)
      add({"scope"},
          "\"host\" alone lets every caller of a host name replay the answers of all others; add where the account "
          "comes from, as in [\"header:Authorization\", \"host\"]");
  }

  void tokens(const Policy& policy) {
    const TokenRules& tokens = policy.tokens;
    if (has_scope(policy, ScopeSource::Kind::client_cert) && config_.client_ca.empty())
      add({"scope"},
          "scope = \"client-cert\" needs client_ca, the PEM file of the authority that issues the clients' "
          "certificates");
    if (!has_scope(policy, ScopeSource::Kind::jwt)) return;
    if (tokens.keys.empty() && !tokens.unverified)
      add({"scope"},
          "scope = \"jwt:...\" needs jwt_keys, as in jwt_keys = \"file:jwks.json\" or the URL of a JWKS: a forged "
          "token would read, block and use up another account's keys; write jwt_unverified = true if something in "
          "front of the gateway verifies every token");
    if (!tokens.keys.empty() && tokens.unverified)
      add({"jwt_unverified", "jwt_keys"},
          "jwt_unverified = true and jwt_keys contradict each other: leave out jwt_unverified to verify tokens");
    if (tokens.unverified && (!tokens.audiences.empty() || !tokens.issuers.empty()))
      add({"jwt_audience", "jwt_issuer", "jwt_unverified"},
          "jwt_audience and jwt_issuer say nothing about tokens that are not verified: leave them out, or set "
          "jwt_keys");
  }

  void answers(const Policy& policy) {
    if (policy.reauthorize_for > Millis(0) && !policy.reauthorize)
      add({"reauthorize_for"}, "reauthorize_for is set without reauthorize: which question is remembered?");
    if (policy.reauthorize && policy.mode == Mode::observe)
      add({"reauthorize", "mode"},
          "mode = \"observe\" replays nothing, so reauthorize would never be asked: leave it out");
    if (!policy.fingerprint_ignore.empty() && policy.fingerprint != FingerprintMode::canonical)
      add({"fingerprint_ignore"},
          "fingerprint_ignore needs fingerprint = \"canonical\": members can only be left out of a body that is read "
          "as JSON");
    if (policy.on_abandoned == OnAbandoned::probe && !policy.probe)
      add({"on_abandoned"},
          "on_abandoned = \"probe\" needs a probe to ask with, as in probe = \"GET /v1/charges?key={{key}}\"");
    if (policy.on_abandoned != OnAbandoned::probe && policy.probe)
      add({"probe"}, "probe is set but on_abandoned is not \"probe\": it would never be asked");
    if (policy.probe && uses_fingerprint_as_key(policy))
      add({"probe", "key_from"},
          "probe cannot ask for a key that is made of the fingerprint: the upstream does not know it");
  }

  // A body larger than all buffers together would always be refused as overload.
  void sizes(const Policy& policy) {
    const std::uint64_t most = config_.limits.max_buffered_bytes;
    if (policy.max_request_body == 0) add({"max_request_body"}, "max_request_body is 0: every body would be refused");
    if (policy.max_request_body > most)
      add({"max_request_body", "limits.max_buffered_bytes"},
          "max_request_body is larger than limits.max_buffered_bytes: such a body is never let in");
    if (policy.max_stored_body > kBodyBytesMax)
      add({"max_stored_body"}, "max_stored_body is more than 1GiB: a record holds no more");
    if (policy.max_stored_body > most)
      add({"max_stored_body", "limits.max_buffered_bytes"},
          "max_stored_body is larger than limits.max_buffered_bytes: such an answer is never held");
  }

  void modes(const Policy& policy) {
    rates(policy.rates);
    const bool observing = policy.mode == Mode::observe;
    if (observing && policy.rates.any())
      add({"rate", "test_rate", "max_in_flight", "mode"},
          "mode = \"observe\" forwards everything, so the limits of this route would not be kept: leave them out until "
          "it enforces");
    if (observing && policy.respond_async)
      add({"respond_async", "mode"},
          "mode = \"observe\" keeps no answers, so respond_async has nothing to fetch later: leave it out until the "
          "route enforces");
    if (observing && policy.compress)
      add({"compress", "mode"},
          "mode = \"observe\" passes answers on as they come, so compress would do nothing: leave it out until the "
          "route enforces");
    if (policy.respond_async && uses_fingerprint_as_key(policy))
      add({"respond_async", "key_from"},
          "respond_async needs keys that clients choose: the status URL is made of the key, and one made of the "
          "fingerprint has no single owner");
  }

  void reachable(const Route& route) {
    for (std::size_t earlier = 0; earlier < *route_; ++earlier) {
      if (route.policy.methods.empty() || !shadows(config_.routes[earlier], route)) continue;
      return add(
          {"path"},
          "route {} is never reached: route {} comes first and matches all of its requests; put the narrower one first",
          route.path, config_.routes[earlier].path);
    }
  }

  const Config& config_;
  std::optional<std::size_t> route_; // the one under way
  std::vector<Problem> out_;
};

} // namespace

std::vector<Problem> problems_of(const Config& config) { return Checks(config).all(); }

std::vector<std::string> warnings_of(const Config& config) {
  std::vector<std::string> warnings;
  if (config.store.starts_with("memory:"))
    warnings.push_back("store memory: keeps nothing: after a restart every retry executes again; for tests and demos");
  if (!is_loopback(config.admin) && config.admin_tls_cert.empty())
    warnings.push_back(
        fmt::format("admin is on {} without TLS: the admin token travels in clear, and everyone on the way can read "
                    "it; set admin_tls_cert and admin_tls_key",
                    config.admin.host));
  if (config.core_dumps)
    warnings.push_back("core_dumps = true: a core dump holds the bodies, keys and tokens that were in memory");
  const std::vector<Url> upstreams = upstreams_of(config);
  for (const Webhook& webhook : config.webhooks) {
    const Endpoint& endpoint = webhook.endpoint;
    const bool on_an_upstream = std::any_of(upstreams.begin(), upstreams.end(),
                                            [&](const Url& url) { return url.authority == endpoint.url.authority; });
    if (on_an_upstream && endpoint.authorization.empty())
      warnings.push_back(fmt::format(
          "webhook {}: deliver_to is on the upstream, where clients of the gateway can post too: let the receiver "
          "refuse what has no Oncekey-Attempt, which the gateway removes from what clients send, or set authorization",
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
