#include "store/postgres/postgres_store.h"

#include "core/record_codec.h"
#include "store/postgres/news.h"
#include "store/postgres/schema.h"
#include "store/postgres/shared.h"
#include "store/postgres/upkeep.h"
#include "store/postgres/worker.h"

#include <pthread.h>

#include <chrono>
#include <utility>
#include <vector>

namespace oncekey {

using namespace postgres;

namespace {

// A server that is there answers within this; one that is not should be said so soon.
constexpr Millis kOpenTime{5000};
// A server that does not take a cancellation within this hangs, and does not keep us from ending.
constexpr Millis kCancelTime{500};
// How often the queue is searched for calls that have waited too long.
constexpr Millis kSweepEvery{50};

Millis steady_clock_millis() {
  return std::chrono::duration_cast<Millis>(std::chrono::steady_clock::now().time_since_epoch());
}

// What the options and the URL say together.
struct Settled {
  PostgresTarget target;
  Millis call_timeout;
  int connections;
};

Result<Settled> settle_options(const PostgresOptions& options) {
  const Result<PostgresUrl> url = split_postgres_url(options.url);
  if (!url) return url.fault();
  Result<PostgresTarget> target = postgres_target(url->for_libpq);
  if (!target) return std::move(target).fault();
  return Settled{*std::move(target), url->call_timeout.value_or(options.call_timeout),
                 url->connections.value_or(options.connections)};
}

struct Connected {
  Settled settled;
  std::unique_ptr<Connection> connection;
};

// A connection to a server that is fit for a store.
Result<Connected> connect(const PostgresOptions& options) {
  Result<Settled> settled = settle_options(options);
  if (!settled) return std::move(settled).fault();
  const std::atomic<bool> never_stops = false;
  Result<std::unique_ptr<Connection>> connection =
      Connection::open(settled->target, deadline_in(kOpenTime), never_stops);
  if (!connection) return std::move(connection).fault();
  const std::string& name = settled->target.name;
  const Result<ServerSight> sight = look_at_server(**connection, name, deadline_in(kOpenTime));
  if (!sight) return sight.fault();
  if (const Status fit = suitable(sight->settings, name); !fit) return fit.fault();
  return Connected{*std::move(settled), *std::move(connection)};
}

// The same, with the schema as this binary knows it.
Result<Connected> connect_and_migrate(const PostgresOptions& options) {
  Result<Connected> connected = connect(options);
  if (!connected) return connected;
  const Status migrated = migrate(*connected->connection, connected->settled.target.name, options.log);
  if (!migrated) return migrated.fault();
  return connected;
}

std::string encoded(const StoredResponse& response) {
  std::string bytes;
  encode_response(response, bytes);
  return bytes;
}

} // namespace

struct PostgresStore::Parts {
  Parts(SharedOptions options) : shared(std::move(options)) {}

  // After the secret is known.
  void start(int connections, Upkeep::Rounds rounds) {
    upkeep.emplace(shared, rounds);
    news.emplace(shared);
    for (int number = 0; number < connections; ++number) workers.push_back(std::make_unique<Worker>(shared));
    sweeper = std::thread([this] { sweep(); });
  }

  ~Parts() {
    shared.stop();
    shared.queue.close();
    workers.clear();
    news.reset();
    upkeep.reset();
    if (sweeper.joinable()) sweeper.join();
    await_cancellations(deadline_in(kCancelTime));
    for (Call& call : shared.queue.refuse_all(unavailable("the store is being closed"))) {
      refuse(call, unavailable("the store is being closed"));
    }
  }

  void submit(decltype(Call::what) what) {
    const Deadline now = std::chrono::steady_clock::now();
    Call call{std::move(what), now + shared.call_timeout / 2, now + shared.call_timeout};
    if (auto refused = shared.queue.submit(std::move(call))) refuse(refused->call, refused->fault);
  }

  void sweep() {
    pthread_setname_np(pthread_self(), "store-sweeper");
    while (shared.sleep(kSweepEvery)) {
      for (Call& call : shared.queue.take_overdue(std::chrono::steady_clock::now())) {
        refuse(call, unavailable("Postgres at " + shared.target.name +
                                 " is too slow: the call waited too long to be sent, and was not"));
      }
    }
  }

  Shared shared;
  std::optional<Upkeep> upkeep;
  std::optional<News> news;
  std::vector<std::unique_ptr<Worker>> workers;
  std::thread sweeper;
};

Result<std::unique_ptr<PostgresStore>> PostgresStore::open(PostgresOptions options) {
  if (!options.skew) options.skew = [] { return Millis{0}; };
  if (!options.local_clock) options.local_clock = steady_clock_millis;
  Result<Connected> connected = connect_and_migrate(options);
  if (!connected) return std::move(connected).fault();
  Settled& settled = connected->settled;
  const std::string name = settled.target.name;
  const Result<ServerSight> sight = look_at_server(*connected->connection, name, deadline_in(kOpenTime));
  if (!sight) return sight.fault();
  if (!sight->meta) {
    return unavailable("the store in Postgres at " + name +
                       " has lost its marker (the row of oncekey.meta), and what else is not known. Find out, then say "
                       "so with: oncekey store accept-loss --store URL");
  }
  auto parts = std::make_unique<Parts>(
      SharedOptions{options.log, settled.target, settled.call_timeout, options.skew, options.local_clock});
  parts->shared.secret = sight->meta->secret;
  if (const Status admitted = parts->shared.admit(*connected->connection); !admitted) return admitted.fault();
  connected->connection.reset();
  parts->start(settled.connections, options.maintenance == PostgresOptions::Maintenance::by_hand
                                        ? Upkeep::Rounds::by_hand
                                        : Upkeep::Rounds::in_background);
  return std::unique_ptr<PostgresStore>(new PostgresStore(std::move(parts)));
}

PostgresStore::PostgresStore(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
PostgresStore::~PostgresStore() = default;

void PostgresStore::claim(ClaimRequest request, Done<ClaimAnswer> done) {
  if (const Status may_claim = parts_->shared.may_claim(); !may_claim) return done(may_claim.fault());
  parts_->submit(ClaimCall{std::move(request), std::move(done)});
}

void PostgresStore::find(const RecordId& id, Interest interest, Done<std::optional<Found>> done) {
  parts_->submit(FindCall{id, interest, std::move(done)});
}

void PostgresStore::renew(const Ownership& owner, Millis lease, Done<FenceAnswer> done) {
  parts_->submit(FenceCall{FenceVerb::renew, owner, lease, {}, false, std::move(done)});
}

void PostgresStore::complete(const Ownership& owner, StoredResponse response, Done<FenceAnswer> done) {
  parts_->submit(
      FenceCall{FenceVerb::complete, owner, Millis{}, encoded(response), response.unfinished(), std::move(done)});
}

void PostgresStore::release(const Ownership& owner, Done<FenceAnswer> done) {
  parts_->submit(FenceCall{FenceVerb::release, owner, Millis{}, {}, false, std::move(done)});
}

void PostgresStore::hold(const Ownership& owner, Holder by, Done<FenceAnswer> done) {
  const FenceVerb verb = by == Holder::owner ? FenceVerb::hold : FenceVerb::hold_found;
  parts_->submit(FenceCall{verb, owner, Millis{}, {}, false, std::move(done)});
}

void PostgresStore::take(const TakeRequest& request, Done<std::vector<TakenJob>> done) {
  if (const Status may_claim = parts_->shared.may_claim(); !may_claim) return done(may_claim.fault());
  parts_->submit(TakeCall{request, std::move(done)});
}

void PostgresStore::end_attempt(const Ownership& owner, AttemptEnd end, Done<FenceAnswer> done) {
  const FenceVerb verb = end.kind == AttemptEnd::Kind::again       ? FenceVerb::attempt_again
                         : end.kind == AttemptEnd::Kind::completed ? FenceVerb::attempt_completed
                                                                   : FenceVerb::attempt_dead;
  parts_->submit(FenceCall{verb, owner, end.pause, encoded(end.message), false, std::move(done)});
}

void PostgresStore::operate(const RecordId& id, OperatorAction action, StoredResponse response,
                            Done<OperatorAnswer> done) {
  parts_->submit(OperatorCall{id, action, encoded(response), response.unfinished(), std::move(done)});
}

void PostgresStore::list(const ListRequest& request, Done<std::vector<Listed>> done) {
  parts_->upkeep->list(request, std::move(done));
}

void PostgresStore::browse(const BrowseRequest& request, Done<BrowsePage> done) {
  parts_->upkeep->browse(request, std::move(done));
}

void PostgresStore::count_waiting(Done<WaitingKeys> done) { parts_->upkeep->count_waiting(std::move(done)); }

void PostgresStore::announce_to(Listener listener) { parts_->shared.announce_to(std::move(listener)); }
Time PostgresStore::now() const { return parts_->shared.clock.now() + parts_->shared.skew(); }
const std::array<std::uint8_t, 32>& PostgresStore::secret() const { return parts_->shared.secret; }
Durability PostgresStore::durability() const { return parts_->shared.durability; }

Status PostgresStore::healthy() const {
  if (const Status may_claim = parts_->shared.may_claim(); !may_claim) return may_claim;
  if (const std::optional<Fault> fault = parts_->shared.queue.fault()) return *fault;
  return ok_status();
}

StoreStats PostgresStore::stats() const { return parts_->upkeep->stats(); }
Status PostgresStore::maintain() { return parts_->upkeep->round(); }

Status migrate_postgres(const PostgresOptions& options) {
  const Result<Connected> connected = connect_and_migrate(options);
  if (!connected) return connected.fault();
  return ok_status();
}

Status reach_postgres(const PostgresOptions& options) {
  const Result<Connected> connected = connect(options);
  if (!connected) return connected.fault();
  return ok_status();
}

Result<std::string> read_identity_note_postgres(const PostgresOptions& options) {
  const Result<Connected> connected = connect_and_migrate(options);
  if (!connected) return connected.fault();
  return read_identity_note(*connected->connection, connected->settled.target.name);
}

Result<bool> write_identity_note_postgres(const PostgresOptions& options, std::string_view expected,
                                          std::string_view next) {
  const Result<Connected> connected = connect_and_migrate(options);
  if (!connected) return connected.fault();
  return write_identity_note(*connected->connection, connected->settled.target.name, expected, next);
}

Status accept_lost_memory_postgres(const PostgresOptions& options) {
  const Result<Connected> connected = connect_and_migrate(options);
  if (!connected) return connected.fault();
  return accept_loss(*connected->connection, connected->settled.target.name);
}

} // namespace oncekey
