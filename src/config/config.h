// config: the settings of `oncekey serve`, from a TOML file or from flags, checked before anything starts.
#pragma once

#include "base/url.h"
#include "core/path.h"
#include "core/policy.h"
#include "signatures/provider.h"

#include <oncekey/result.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

struct Address {
  std::string host;
  std::uint16_t port = 0; // 0 picks a free one and logs it
};
Result<Address> parse_address(std::string_view text);
bool is_loopback(const Address& address);
// Whether a connection to `host` can end at a listener on `address`, ports aside. Names other than localhost are not
// resolved: the check must not depend on the network, and Via catches the loops it misses.
bool reaches(std::string_view host, const Address& address);
// Whether two listeners cannot both have these addresses: they have one port, and one host, or one of them has every
// interface. Port 0 is a free one.
bool collide(const Address& one, const Address& other);

// A URL without a path and a query: those of the requests are forwarded.
Result<Url> parse_upstream(std::string_view text);

struct RouteState; // the gateway's: gateway/shared.h

struct Route {
  std::string path; // glob in normal form: * matches any characters, also slashes; everything else matches itself
  std::string name; // label in metrics and logs: the path, made unique
  Policy policy;
  std::optional<Url> upstream{};     // nothing: the one at the top
  const RouteState* state = nullptr; // set in a configuration that a gateway uses, and lives as long as that
};

// A place that staged messages are delivered to: [[destination]], and the delivery half of a [[webhook]].
struct Endpoint {
  std::string name; // of its jobs: "hook /hooks/stripe" or "to billing"
  Url url;
  std::string ca_file;       // PEM; the system's certificates when empty
  std::string authorization; // sent as Authorization; never kept with a message
  Millis timeout = std::chrono::seconds(30);
  std::uint32_t concurrency = 16;               // deliveries at one time, of one gateway
  Millis budget = std::chrono::hours(72);       // from the first receipt to the dead letter
  Millis remember = std::chrono::hours(24 * 7); // how long a repetition is known, from the first receipt
  Millis first_pause = std::chrono::seconds(1); // before the second attempt; doubles with each
  Millis longest_pause = std::chrono::hours(1);
  bool keep_delivered = true; // with its body, so that it can be sent again
};

struct Webhook {
  std::string path; // in normal form
  std::string provider;
  HmacScheme hmac; // for provider = "hmac"
  std::vector<std::string> secrets;
  Millis tolerance = std::chrono::minutes(5);
  std::uint64_t max_body = 4u << 20;
  std::string url;      // the whole URL as the sender knows it, for providers that sign it
  std::string order_by; // JSON pointer; events with the same value there go one after another
  Repetition repetition = Repetition::by_what_is_signed;
  Endpoint endpoint;
};

struct Limits {
  std::uint32_t max_in_flight = 0; // keyed operations under way; 0: as many as max_upstream_connections
  std::uint32_t max_connections = 4096;
  std::uint64_t max_header_bytes = 32u << 10;    // request line and fields together
  std::uint64_t max_buffered_bytes = 512u << 20; // all bodies held in memory at one time; beyond it 503
  std::uint32_t max_upstream_connections = 1024; // per gateway; beyond it 503
  std::uint32_t max_connections_per_address = 0; // 0: a quarter of max_connections
  // What one client address, and one account, may hold of memory, places and waiters once half of them is in use.
  double share_per_address = 0.25;
  double share_per_account = 0.25;
  // What one address, and one account, may add to the store in an hour once it is half full, as a part of its limit.
  double store_share_per_hour = 0.01;
  std::uint64_t max_store_bytes = 0; // 0: as much as the disk has, less the reserve
  // What stays free on the disk: in bytes or as a part of it; neither means 5 %, at least 64 MiB, at most 1 GiB.
  std::optional<std::uint64_t> disk_reserve_bytes;
  std::optional<double> disk_reserve_part;
  std::uint64_t min_rate = 1024; // bytes a second a client must send or take at least
};

struct Timeouts {
  Millis connect = std::chrono::seconds(5);
  Millis request_headers = std::chrono::seconds(30); // from the first byte of a request to the end of its head
  Millis request_body = std::chrono::seconds(30);    // for limits.min_rate times this many bytes of a body, or its rest
  Millis idle = std::chrono::seconds(75);            // keep-alive connections of clients
  Millis upstream_idle = std::chrono::seconds(4);    // below the 5 s after which Node closes its side
  Millis write = std::chrono::seconds(30);           // the same for an answer that waits to be taken
  Millis tunnel_idle = std::chrono::minutes(5);      // a WebSocket in which nothing moves either way
  Millis lame_duck{0};                               // after SIGTERM, how long new connections are still taken
};

// How much of the policies anonymous clients may read at /.well-known/idempotency.
enum class PublishedPolicies {
  expiry, // what every client needs: key headers, syntax, retention, statuses; neither paths nor scopes
  routes, // everything, route by route
  none,   // nothing: the request is forwarded like any other
};

// The circuit breaker in front of an upstream that cannot be reached.
struct BreakerOptions {
  std::uint32_t failures = 5; // in a row; 0 for no breaker
  Millis window = std::chrono::seconds(10);
  Millis pause = std::chrono::seconds(1); // how long it stays open before one request may try
};

struct Config {
  Address listen{"127.0.0.1", 8080};
  Address admin{"127.0.0.1", 8081};
  std::string admin_token;      // required when admin is not on loopback; else made at the first start
  std::string admin_read_token; // sees what operators see, without bodies, and cannot act; empty: there is none
  std::string admin_tls_cert;
  std::string admin_tls_key;
  std::string admin_client_ca;              // PEM file: its certificates may read on the admin listener
  std::vector<std::string> admin_operators; // the names of those certificates that may act as well
  std::vector<std::string> admin_hosts;     // host names of the admin listener, in lower case, beside its own
  Url upstream;                             // without a host where every route has its own
  std::string upstream_ca;                  // PEM file for all of them; the system's certificates when empty
  std::string tls_cert;
  std::string tls_key;
  std::string client_ca; // PEM file: clients may show certificates of these issuers
  std::string store = "journal:./oncekey-data";
  std::optional<std::string> require_durability;
  std::string encryption_key_file; // the keys that what is kept is encrypted with; empty: it is kept in clear
  bool trust_clock = false;        // the wall clock is right whatever the kernel says
  bool core_dumps = false;
  std::string gateway_name;  // what records call this gateway; empty: one is made at start
  std::uint32_t threads = 0; // 0: see event_loops()
  std::string log_level = "info";
  std::string log_format = "text";
  std::string access_log = "off";           // "-" for standard output, or a path
  std::string audit_log;                    // a path, or "off"; empty: the usual place (cli/audit_setup.h)
  std::optional<Url> otlp_endpoint;         // where spans are sent; nothing: requests are not traced
  double trace_sample = 1;                  // the part of the requests without a traceparent that is traced
  std::uint64_t audit_log_size = 64u << 20; // a larger file is rotated; 0: never
  Millis audit_log_keep{0};                 // rotated files with older lines alone are deleted; 0: never
  std::vector<std::string> cors_origins;    // pages of these may read the gateway's own answers; "*" alone for all
  // For requests that match no route: how long either side may stay silent. Routes have their own.
  Millis upstream_timeout = std::chrono::seconds(60);
  Millis drain_timeout = std::chrono::seconds(30);
  // A job whose webhook or destination is not configured is given up when it was due for so long: long enough for a
  // rolling restart of all gateways on a store.
  Millis orphan_after = std::chrono::minutes(15);
  PathCase path_case = PathCase::exact; // of webhooks; routes have their own
  PublishedPolicies publish_policies = PublishedPolicies::expiry;
  std::vector<std::string> trusted_proxies; // addresses whose X-Forwarded-* are kept and appended to
  Limits limits;
  Timeouts timeouts;
  RateLimits rates;  // of one account, over all routes that say nothing of their own
  Rate address_rate; // of one client address, over everything it sends; limits nothing unless set
  BreakerOptions breaker;
  std::vector<Route> routes;
  std::vector<Webhook> webhooks;
  std::optional<Address> outbox; // the listener that takes messages for the destinations
  std::string outbox_token;      // required when it is not on loopback
  std::vector<Endpoint> destinations;
};

// Reads only the settings that a command needs to find a gateway's admin listener, its store and its audit log: admin,
// admin_token, admin_tls_cert, store, encryption_key_file, audit_log and gateway_name. The rest of the file is ignored,
// so that an operator needs none of the secrets it names.
Result<Config> load_admin_settings(const std::string& path);

// Where the requests of a route go.
const Url& upstream_of(const Config& config, const Route& route);
// Every upstream once: the one at the top first, if there is one, then those of the routes in their order.
std::vector<Url> upstreams_of(const Config& config);

// What is allowed but deserves a second look, one sentence each. Printed by `oncekey check` and logged at start.
std::vector<std::string> warnings_of(const Config& config);
// The same about the files that it names: certificates whose time is over.
std::vector<std::string> warnings_of_files(const Config& config);

bool glob_matches(std::string_view glob, std::string_view path, PathCase path_case = PathCase::exact);
// The same, but a glob that ends in "/*" matches its folder too: a trailing slash counts for nothing.
bool glob_matches_folder(std::string_view glob, std::string_view path, PathCase path_case);
// Whether every path that `narrow` matches is matched by `wide` too.
bool glob_covers(std::string_view wide, std::string_view narrow);
bool glob_covers(std::string_view wide, PathCase wide_case, std::string_view narrow, PathCase narrow_case);
// Whether no request can reach `later` because `earlier`, which is asked first, takes all of its paths and methods.
bool shadows(const Route& earlier, const Route& later);

// The provider that a webhook names; a fault if there is none, or the settings of an "hmac" one contradict each other.
Result<std::shared_ptr<const WebhookProvider>> provider_without_secrets(const Webhook& webhook);
// A fault if there is no secret, or one is not of the provider's form.
Status check_secrets(const WebhookProvider& provider, const Webhook& webhook);
// Both.
Result<std::shared_ptr<const WebhookProvider>> provider_of(const Webhook& webhook);

// Does the configuration have a webhook or destination whose jobs have this name?
bool has_endpoint(const Config& config, std::string_view name);
// Why a job without one is dead, and is not retried.
inline constexpr std::string_view kNoSuchEndpoint = "no webhook or destination of this name is configured";

// How many event loops serve requests on a machine with so many cores. By default one for every two cores: the others
// are for the store, the kernel's side of the network and the API. A second loop on two cores costs each request more
// CPU time than it gains.
inline std::size_t event_loops(const Config& config, unsigned cores) {
  return config.threads != 0 ? config.threads : std::max(1u, cores / 2);
}

} // namespace oncekey
