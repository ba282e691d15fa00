#include "store/postgres/postgres_store.h"

#include "store/postgres/batch_sender.h"
#include "store/postgres/housekeeping.h"
#include "store/postgres/news.h"
#include "store/postgres/postgres_jobs.h"
#include "store/postgres/postgres_state.h"
#include "store/postgres/schema.h"

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

struct OpenedServer {
  Settled settled;
  std::unique_ptr<Connection> connection;
};

// A connection to a server that is fit for a store.
Result<OpenedServer> connect(const PostgresOptions& options) {
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
  return OpenedServer{*std::move(settled), *std::move(connection)};
}

// The same, with the schema as this binary knows it.
Result<OpenedServer> connect_and_migrate(const PostgresOptions& options) {
  Result<OpenedServer> connected = connect(options);
  if (!connected) return connected;
  const Status migrated = migrate(*connected->connection, connected->settled.target.name, options.log);
  if (!migrated) return migrated.fault();
  return connected;
}

} // namespace

struct PostgresStore::Parts {
  Parts(PostgresStateOptions options) : state(std::move(options)) {}

  // After the secret is known.
  void start(int connections, Housekeeping::Rounds rounds) {
    housekeeping.emplace(state, rounds);
    jobs.emplace(state, *housekeeping, [this](const RecordId& id, AnyCall call) { submit(id, std::move(call)); });
    news.emplace(state);
    for (int number = 0; number < connections; ++number) senders.push_back(std::make_unique<BatchSender>(state));
    sweeper = std::thread([this] { sweep(); });
  }

  ~Parts() {
    state.stop();
    state.queue.close();
    senders.clear();
    news.reset();
    housekeeping.reset();
    if (sweeper.joinable()) sweeper.join();
    await_cancellations(deadline_in(kCancelTime));
    const Fault closed = unavailable("the store is being closed");
    for (const PostgresCallPtr& call : state.queue.refuse_all(closed)) refuse(call->what, closed);
  }

  void submit(const RecordId& id, AnyCall what) {
    const Deadline now = std::chrono::steady_clock::now();
    auto refused = state.queue.submit(id, std::move(what), now + state.call_timeout / 2, now + state.call_timeout);
    if (refused) refuse(refused->call, refused->fault);
  }

  void sweep() {
    pthread_setname_np(pthread_self(), "store-sweeper");
    while (state.sleep(kSweepEvery)) {
      for (const PostgresCallPtr& call : state.queue.take_overdue(std::chrono::steady_clock::now())) {
        refuse(call->what, unavailable("Postgres at " + state.target.name +
                                       " is too slow: the call waited too long to be sent, and was not"));
      }
    }
  }

  PostgresState state;
  std::optional<Housekeeping> housekeeping;
  std::optional<PostgresJobs> jobs;
  std::optional<News> news;
  std::vector<std::unique_ptr<BatchSender>> senders;
  std::thread sweeper;
};

Result<std::unique_ptr<PostgresStore>> PostgresStore::open(PostgresOptions options) {
  if (!options.skew) options.skew = [] { return Millis{0}; };
  Result<OpenedServer> connected = connect_and_migrate(options);
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
      PostgresStateOptions{options.log, settled.target, settled.call_timeout, options.skew, options.local_clock});
  parts->state.marker.secret = sight->meta->secret;
  if (const Status admitted = parts->state.admit(*connected->connection); !admitted) return admitted.fault();
  connected->connection.reset();
  parts->start(settled.connections, options.maintenance == PostgresOptions::Maintenance::by_hand
                                        ? Housekeeping::Rounds::by_hand
                                        : Housekeeping::Rounds::in_background);
  return std::unique_ptr<PostgresStore>(new PostgresStore(std::move(parts)));
}

PostgresStore::PostgresStore(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
PostgresStore::~PostgresStore() = default;

void PostgresStore::claim(ClaimRequest request, Done<ClaimAnswer> done) {
  if (const Status may_claim = parts_->state.marker.may_claim(); !may_claim) return done(may_claim.fault());
  const RecordId id = request.id;
  parts_->submit(id, ClaimCall{std::move(request), std::move(done)});
}

void PostgresStore::find(const RecordId& id, Interest interest, Done<std::optional<Found>> done) {
  parts_->submit(id, FindCall{id, interest, std::move(done)});
}

void PostgresStore::by_fence(FenceCall call) {
  const RecordId id = call.owner.id;
  parts_->submit(id, std::move(call));
}

JobStore& PostgresStore::jobs() { return *parts_->jobs; }

void PostgresStore::operate(const RecordId& id, OperatorAction action, StoredResponse response,
                            Done<OperatorAnswer> done) {
  parts_->submit(id, OperatorCall{id, action, std::move(response), std::move(done)});
}

void PostgresStore::list(const ListRequest& request, Done<std::vector<Listed>> done) {
  parts_->housekeeping->list(request, std::move(done));
}

void PostgresStore::browse(const BrowseRequest& request, Done<BrowsePage> done) {
  parts_->housekeeping->browse(request, std::move(done));
}

void PostgresStore::count_waiting(Done<WaitingKeys> done) { parts_->housekeeping->count_waiting(std::move(done)); }

void PostgresStore::announce_to(Listener listener) { parts_->state.announce_to(std::move(listener)); }
Time PostgresStore::now() const { return parts_->state.clock.now() + parts_->state.skew(); }
const std::array<std::uint8_t, 32>& PostgresStore::secret() const { return parts_->state.marker.secret; }
Durability PostgresStore::durability() const { return parts_->state.durability; }

Status PostgresStore::healthy() const {
  if (const Status may_claim = parts_->state.marker.may_claim(); !may_claim) return may_claim;
  if (const std::optional<Fault> fault = parts_->state.queue.fault()) return *fault;
  return ok_status();
}

StoreStats PostgresStore::stats() const { return parts_->housekeeping->stats(); }
Status PostgresStore::maintain() { return parts_->housekeeping->round(); }

Status migrate_postgres(const PostgresOptions& options) {
  const Result<OpenedServer> connected = connect_and_migrate(options);
  if (!connected) return connected.fault();
  return ok_status();
}

Status reach_postgres(const PostgresOptions& options) {
  const Result<OpenedServer> connected = connect(options);
  if (!connected) return connected.fault();
  return ok_status();
}

Result<std::string> read_identity_note_postgres(const PostgresOptions& options) {
  const Result<OpenedServer> connected = connect_and_migrate(options);
  if (!connected) return connected.fault();
  return read_identity_note(*connected->connection, connected->settled.target.name);
}

Result<bool> write_identity_note_postgres(const PostgresOptions& options, std::string_view expected,
                                          std::string_view next) {
  const Result<OpenedServer> connected = connect_and_migrate(options);
  if (!connected) return connected.fault();
  return write_identity_note(*connected->connection, connected->settled.target.name, expected, next);
}

Status accept_lost_memory_postgres(const PostgresOptions& options) {
  const Result<OpenedServer> connected = connect_and_migrate(options);
  if (!connected) return connected.fault();
  return accept_loss(*connected->connection, connected->settled.target.name);
}

} // namespace oncekey
