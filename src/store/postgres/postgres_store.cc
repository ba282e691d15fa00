#include "store/postgres/postgres_store.h"

#include "store/postgres/batch_sender.h"
#include "store/postgres/housekeeping.h"
#include "store/postgres/news.h"
#include "store/postgres/postgres_url.h"

#include <pthread.h>

#include <chrono>
#include <cstring>
#include <functional>

namespace oncekey {

using namespace postgres;

namespace {

// A server that is there answers within this; one that is not should be said so soon.
constexpr Millis kOpenTime{5000};
// A server that does not take a cancellation within this hangs, and does not keep us from ending.
constexpr Millis kCancelTime{500};
// How often the queue is searched for calls that have waited too long.
constexpr Millis kSweepEvery{50};

// A connection to a server that is fit for a store, and what the options and the URL say together.
struct OpenedServer {
  PostgresTarget target;
  Millis call_timeout;
  int connections;
  std::unique_ptr<Connection> connection;
};

Result<OpenedServer> connect(const PostgresOptions& options) {
  const Result<PostgresUrl> url = split_postgres_url(options.url);
  if (!url) return url.fault();
  Result<PostgresTarget> target = postgres_target(url->for_libpq);
  if (!target) return std::move(target).fault();
  const std::atomic<bool> never_stops = false;
  Result<std::unique_ptr<Connection>> connection = Connection::open(*target, deadline_in(kOpenTime), never_stops);
  if (!connection) return std::move(connection).fault();
  const Result<ServerSight> sight = look_at_server(**connection, deadline_in(kOpenTime));
  if (!sight) return sight.fault();
  if (const Status fit = suitable(sight->settings, target->name); !fit) return fit.fault();
  return OpenedServer{*std::move(target), url->call_timeout.value_or(options.call_timeout),
                      url->connections.value_or(options.connections), *std::move(connection)};
}

// The same, with the schema as this binary knows it.
Result<OpenedServer> connect_and_migrate(const PostgresOptions& options) {
  Result<OpenedServer> connected = connect(options);
  if (!connected) return connected;
  const Status migrated = migrate(*connected->connection, options.log, options.sealer);
  if (!migrated) return migrated.fault();
  return connected;
}

// What `use` returns for the connection.
template <class Use>
std::invoke_result_t<Use, Connection&> with_schema(const PostgresOptions& options, Use use) {
  const Result<OpenedServer> connected = connect_and_migrate(options);
  if (!connected) return connected.fault();
  return use(*connected->connection);
}

class OpenPostgresStore final : public PostgresStore, public JobStore {
 public:
  OpenPostgresStore(const PostgresOptions& options, const OpenedServer& server)
      : state_(options.log, server.target, server.call_timeout, options.skew, options.local_clock, options.sealer) {}

  // Admits the server over the connection that is there, and starts the threads. No call is made before.
  Status start(const PostgresOptions& options, const Secret& secret, OpenedServer server) {
    state_.marker.secret = secret;
    if (const Status admitted = state_.admit(*server.connection); !admitted) return admitted;
    server.connection.reset();
    housekeeping_.emplace(state_, options.maintenance);
    news_.emplace(state_);
    for (int number = 0; number < server.connections; ++number) {
      senders_.push_back(std::make_unique<BatchSender>(state_));
    }
    sweeper_ = std::thread([this] { sweep(); });
    return ok_status();
  }

  ~OpenPostgresStore() override {
    state_.stop();
    state_.queue.close();
    senders_.clear();
    news_.reset();
    housekeeping_.reset();
    if (sweeper_.joinable()) sweeper_.join();
    await_cancellations(deadline_in(kCancelTime));
    const Fault closed = unavailable("the store is being closed");
    for (const PostgresCallPtr& call : state_.queue.refuse_all(closed)) refuse(call->what, closed);
  }

  void claim(ClaimRequest request, Done<ClaimAnswer> done) override {
    const RecordId id = request.id;
    begin(id, ClaimCall{std::move(request), std::move(done)});
  }
  void find(const RecordId& id, Interest interest, Done<std::optional<Found>> done) override {
    submit(id, FindCall{id, interest, std::move(done)});
  }
  void by_fence(FenceCall call) override {
    const RecordId id = call.owner.id;
    submit(id, std::move(call));
  }
  void operate(const RecordId& id, OperatorAction action, StoredResponse response, Done<OperatorAnswer> done) override {
    submit(id, OperatorCall{id, action, std::move(response), std::move(done)});
  }
  void list(const ListRequest& request, Done<std::vector<Listed>> done) override {
    housekeeping_->ask(std::move(done), &Housekeeping::list, request);
  }
  void browse(const BrowseRequest& request, Done<BrowsePage> done) override {
    housekeeping_->ask(std::move(done), &Housekeeping::browse, request);
  }
  void count_waiting(Done<WaitingKeys> done) override {
    housekeeping_->ask(std::move(done), &Housekeeping::count_waiting);
  }
  void beat(GatewayBeat mine, Done<std::vector<GatewayBeat>> done) override {
    housekeeping_->ask(std::move(done), &Housekeeping::beat, mine);
  }
  void announce_to(Listener listener) override { state_.announce_to(std::move(listener)); }
  Time now() const override { return state_.clock.now() + state_.skew(); }
  const Secret& secret() const override { return state_.marker.secret; }
  Durability durability() const override { return state_.durability; }
  Status healthy() const override {
    if (const Status may_claim = state_.marker.may_claim(); !may_claim) return may_claim;
    if (const std::optional<Fault> fault = state_.queue.fault()) return *fault;
    return ok_status();
  }
  StoreStats stats() const override { return housekeeping_->stats(); }
  Status maintain() override { return housekeeping_->round(); }

  // The jobs.
  JobStore& jobs() override { return *this; }
  void stage(StageRequest request, Done<StageAnswer> done) override {
    const RecordId id = request.id;
    begin(id, StageCall{std::move(request), std::move(done)});
  }
  void take(const TakeRequest& request, Done<std::vector<TakenJob>> done) override {
    // Takes of one route go one after another.
    RecordId line;
    const std::size_t hash = std::hash<std::string>{}(request.route);
    std::memcpy(line.bytes.data(), &hash, sizeof hash);
    begin(line, TakeCall{request, std::move(done)});
  }
  void end_attempt(const Ownership& owner, AttemptEnd end, Done<FenceAnswer> done) override {
    submit(owner.id, AttemptCall{owner, std::move(end), std::move(done)});
  }
  void find(const RecordId& id, Done<std::optional<FoundJob>> done) override {
    submit(id, FindJobCall{id, std::move(done)});
  }
  void operate(const RecordId& id, const std::string& /*route*/, JobAction action, std::optional<JobSeen> seen,
               Done<JobAnswer> done) override {
    submit(id, JobOperatorCall{id, action, seen, std::move(done)});
  }
  void list(const JobListRequest& request, Done<JobPage> done) override {
    housekeeping_->ask(std::move(done), &Housekeeping::list_jobs, request);
  }
  void count(Done<std::vector<JobCount>> done) override {
    housekeeping_->ask(std::move(done), &Housekeeping::count_jobs);
  }

 private:
  // For new work, which is refused while the store may have forgotten what was done.
  template <class Call>
  void begin(const RecordId& id, Call call) {
    if (const Status may_claim = state_.marker.may_claim(); !may_claim) return call.done(may_claim.fault());
    submit(id, std::move(call));
  }

  void submit(const RecordId& id, AnyCall what) {
    const Deadline now = std::chrono::steady_clock::now();
    const auto fault = state_.queue.submit(id, what, now + state_.call_timeout / 2, now + state_.call_timeout);
    if (fault) refuse(what, *fault);
  }

  void sweep() {
    pthread_setname_np(pthread_self(), "store-sweeper");
    while (state_.sleep(kSweepEvery)) {
      for (const PostgresCallPtr& call : state_.queue.take_overdue(std::chrono::steady_clock::now())) {
        refuse(call->what, unavailable("Postgres at " + state_.target.name +
                                       " is too slow: the call waited too long to be sent, and was not"));
      }
    }
  }

  PostgresState state_;
  std::optional<Housekeeping> housekeeping_;
  std::optional<News> news_;
  std::vector<std::unique_ptr<BatchSender>> senders_;
  std::thread sweeper_;
};

} // namespace

Result<std::unique_ptr<PostgresStore>> PostgresStore::open(PostgresOptions options) {
  if (!options.skew) options.skew = [] { return Millis{0}; };
  Result<OpenedServer> connected = connect_and_migrate(options);
  if (!connected) return std::move(connected).fault();
  const Result<ServerSight> sight = look_at_server(*connected->connection, deadline_in(kOpenTime));
  if (!sight) return sight.fault();
  if (!sight->meta) {
    return unavailable("the store in Postgres at " + connected->target.name +
                       " has lost its marker (the row of oncekey.meta), and what else is not known. Find out, then say "
                       "so with: oncekey store accept-loss --store URL");
  }
  const Result<Secret> secret = sight->meta->secret.open(options.sealer);
  if (!secret) return secret.fault();
  auto store = std::make_unique<OpenPostgresStore>(options, *connected);
  const Status started = store->start(options, *secret, *std::move(connected));
  if (!started) return started.fault();
  return std::unique_ptr<PostgresStore>(std::move(store));
}

Status migrate_postgres(const PostgresOptions& options) {
  return with_schema(options, [](Connection&) { return ok_status(); });
}

Status reach_postgres(const PostgresOptions& options) {
  const Result<OpenedServer> connected = connect(options);
  if (!connected) return connected.fault();
  return ok_status();
}

Result<bool> postgres_store_exists(const PostgresOptions& options) {
  const Result<OpenedServer> connected = connect(options);
  if (!connected) return connected.fault();
  return has_schema(*connected->connection, deadline_in(kOpenTime));
}

Result<std::string> read_note_postgres(const PostgresOptions& options, StoreNote note) {
  return with_schema(options, [&](Connection& connection) { return read_note(connection, note); });
}

Result<bool> write_note_postgres(const PostgresOptions& options, StoreNote note, std::string_view expected,
                                 std::string_view next) {
  return with_schema(options, [&](Connection& connection) { return write_note(connection, note, expected, next); });
}

Status reseal_secret_postgres(const PostgresOptions& options) {
  return with_schema(options, [&](Connection& connection) -> Status {
    const Result<ServerSight> sight = look_at_server(connection, deadline_in(kOpenTime));
    if (!sight) return sight.fault();
    if (!sight->meta || !sight->meta->secret.must_be_resealed(options.sealer)) return ok_status();
    const KeptSecret& seen = sight->meta->secret;
    const Result<Secret> secret = seen.open(options.sealer);
    if (!secret) return secret.fault();
    return reseal(connection, seen, KeptSecret(*secret, options.sealer), deadline_in(kOpenTime));
  });
}

Status accept_lost_memory_postgres(const PostgresOptions& options) { return with_schema(options, accept_loss); }

} // namespace oncekey
