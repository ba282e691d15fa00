// shared: what all threads of a gateway have in common, and what each has beside it.
#pragma once

#include "audit/audit_log.h"
#include "base/crypto.h"
#include "base/log.h"
#include "base/shares.h"
#include "config/config.h"
#include "core/limit.h"
#include "gateway/account_limits.h"
#include "gateway/await_store.h"
#include "gateway/key_activity.h"
#include "gateway/live_calls.h"
#include "gateway/store_room.h"
#include "gateway/storms.h"
#include "gateway/trust.h"
#include "gateway/upstreams.h"
#include "gateway/waiters.h"
#include "trace/span_exporter.h"

#include "core/store.h"

namespace oncekey {

// What the gateway keeps beside a route of a configuration it uses.
struct RouteState {
  std::size_t number = 0; // in Metrics and Storms
  const RouteMetrics& metrics;
  Upstream& upstream;
  RouteTrust trust;
  // Names the route with the rules it has in this configuration: what was remembered under others does not count.
  std::string rules_name;
};

// A configuration in use, with what is made of it. A reload makes another one; requests under way keep theirs.
struct Generation {
  Config config;
  std::deque<RouteState> states; // Route::state points here
  std::string published;         // the document at /.well-known/idempotency; empty for none
  bool has_status_urls = false;  // some route allows respond_async
};

struct GatewayShared {
  GatewayShared(const Config& configuration, Store& record_store, Log& logger);

  // The newest configuration. All that were ever used stay for the life of the process, so that a request needs neither
  // a lock nor a count to hold on to the route it began with.
  const Generation& generation() const { return *generation_.load(std::memory_order_acquire); }
  const Config& config() const { return generation().config; }
  // Makes ready what use() takes. A fault if it names what only a start can set up. Changes nothing that requests see;
  // no other one may be used in between.
  Result<std::unique_ptr<Generation>> prepare(Config next);
  // Requests that come from now on go by it. Not from several threads at once.
  void use(std::unique_ptr<Generation> next);
  // As many may be used in the life of one process; each takes a few KiB for each route.
  static constexpr std::size_t kGenerationsMax = 1000;

  Store& store;
  Log& log;
  KeyedHash hash; // keyed with the store's secret
  Metrics metrics;
  // Set before the first request; null where they are off.
  AuditLog* audit = nullptr;
  SpanExporter* spans = nullptr;
  // Shared with the store, which may have news to tell until it ends.
  const std::shared_ptr<Waiters> waiters_owner = std::make_shared<Waiters>();
  Waiters& waiters = *waiters_owner;
  // Shared with the store, which asks for it until it ends.
  const std::shared_ptr<LiveCalls> live_calls_owner = std::make_shared<LiveCalls>();
  LiveCalls& live_calls = *live_calls_owner;
  GivenUp given_up;
  ProxyIdentity self;
  const std::string name; // what records call this gateway
  Policy no_policy;       // for requests that match no route: how they are refused, and which headers would be keys
  std::atomic<bool> leaving{false};   // told to stop: not ready any more
  std::atomic<bool> draining{false};  // no new connections: what runs comes to its end
  std::atomic<bool> waits_end{false}; // requests that wait for another one are sent away
  // Connections, memory, places and waiters, by caller. Shared with the listener, which counts connections.
  const std::shared_ptr<Shares> shares_owner;
  Shares& shares = *shares_owner;
  StoreRoom room;
  const std::uint64_t account_seed = random_u64();
  std::atomic<std::uint32_t> upstream_open{0}; // calls under way, to all upstreams
  std::atomic<std::uint32_t> executing{0};     // keyed operations
  std::atomic<std::uint32_t> detached{0};      // operations that go on without their client
  std::atomic<std::uint32_t> tunnels{0};       // WebSockets that are open
  LocalRates local_rates;
  RateKeeper& rates; // the store's, if it has any
  AccountPlaces accounts;
  Places work; // keyed operations under way, for limits.max_in_flight
  Upstreams upstreams;
  Storms storms;
  KeyActivity key_activity;
  Trust trust;
  Reauthorized reauthorized;

  // Whether the owner of a record in progress is known to have stopped: its process has ended, or it has given up here.
  bool owner_is_gone(const RecordId& id, const Record& record) const;

 private:
  std::vector<std::unique_ptr<const Generation>> generations_;
  std::atomic<const Generation*> generation_{nullptr};
};

// The accounts that an event loop saw last, so that the requests of one account do not all look it up under a lock. One
// per loop.
class RecentAccounts {
 public:
  explicit RecentAccounts(Shares& shares) : shares_(shares) {}
  Parties::Ref join(const AccountId& account);

 private:
  struct Recent {
    AccountId account{};
    Parties::Ref party;
  };
  Shares& shares_;
  std::array<Recent, 64> recent_;
};

// What the requests of one event loop use. Everything here is touched by that loop's thread alone, but for what it
// refers to.
struct GatewayThread {
  // `upstream_pools` are those of this thread.
  GatewayThread(GatewayShared& all, UpstreamPools& upstream_pools, Loop& event_loop)
      : shared(all), pools(upstream_pools), loop(event_loop), recent_accounts(all.shares) {}
  GatewayThread& operator=(GatewayThread&&) = delete;

  UpstreamPool& pool_of(const Upstream& upstream) { return *pools[upstream.index]; }
  // The record as it is. co_await gives a Result<std::optional<Found>>.
  auto find(const RecordId& id, Interest interest) {
    return await_store<std::optional<Found>>(
        loop, [this, id, interest](auto done) { shared.store.find(id, interest, std::move(done)); });
  }

  GatewayShared& shared;
  UpstreamPools& pools;
  Loop& loop;
  RecentAccounts recent_accounts;
  VerifiedTokens verified_tokens;
};

// Whose shares a request counts in. Outlives every Holding that names its parties.
class Sharer {
 public:
  // `address` is the party of the connection, which outlives this; null for a trusted proxy.
  explicit Sharer(Party* address) : address_(address) {}
  // For work that outlives the connection.
  Sharer(const Sharer& other, Shares& shares);

  // The client that a trusted proxy reports.
  void is_behind_proxy(Shares& shares, std::string_view address);
  void is_account(RecentAccounts& recent, const AccountId& account);
  Party* address() const { return address_; }
  Party* account() const { return account_.get(); }

 private:
  Party* address_;
  Parties::Ref address_ref_;
  Parties::Ref account_;
};

// By the address of the connection, or the one that a trusted proxy reports.
Sharer sharer_of(GatewayShared& shared, const Exchange& exchange);

// False when the address sends faster than address_rate allows: the request has its answer then.
Task<bool> within_address_rate(GatewayShared& shared, Exchange& exchange);

// Bytes of bodies held in memory, for as long as this lives. The first few are not counted: they are no more than a
// head takes, which the limit of connections bounds, and most bodies are that small.
class BufferedBytes {
 public:
  static constexpr std::uint64_t kUncounted = 4096;

  BufferedBytes(GatewayShared& shared, const Sharer& sharer)
      : holding_(shared.shares, Resource::buffered_bytes, sharer.address(), sharer.account()) {}

  // False when a limit would be passed, which why() tells; nothing is counted then.
  bool try_hold(std::uint64_t bytes);
  // For an answer that exists already. An answer that is larger than the limit has its turn when no other holds
  // anything.
  bool try_hold_answer(GatewayShared& shared, std::uint64_t bytes);
  // Counts without asking: for an answer to something that was executed already, which cannot be refused any more.
  void hold(std::uint64_t bytes) { holding_.add(bytes); }
  std::uint64_t held() const { return holding_.held(); }
  Grant why() const { return why_; }

 private:
  Holding holding_;
  std::uint64_t uncounted_ = 0;
  Grant why_ = Grant::given;
};

// Hints for operators: said once a minute, however often a client causes them.
inline constexpr std::chrono::seconds kHintEvery{60};

// The refusal of a request that a limit or a share has no room for.
Refusal refusal_of(Grant grant, Resource resource);

} // namespace oncekey
