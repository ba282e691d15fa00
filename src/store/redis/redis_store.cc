#include "store/redis/redis_store.h"

#include "core/record_codec.h"
#include "store/redis/announcements.h"
#include "store/redis/beats.h"
#include "store/redis/listing.h"
#include "store/redis/rates.h"
#include "store/redis/redis_jobs.h"
#include "store/redis/upkeep.h"
#include "store/redis/values.h"

#include <future>
#include <system_error>
#include <thread>

namespace oncekey {
namespace redis {
namespace {

// How long a server that is not there yet is waited for at start.
constexpr std::chrono::seconds kPatienceAtStart{5};
constexpr Millis kPauseAtStart{50};

std::string owner_word(const Ownership& owner) {
  std::string word = encode_number(owner.fence);
  if (owner.token != ClaimToken{}) word.append(owner.token.begin(), owner.token.end());
  return word;
}

// What follows the texts in the value of a completed record.
std::string answer_word(const StoredResponse& response) {
  std::string bytes = encode_number(static_cast<std::uint16_t>(response.status));
  encode_response(response, bytes);
  return bytes;
}

CallPtr call_for(const FenceCall& what) {
  const auto call = [&](std::string_view verb, const auto&... words) {
    return call_for(Script::records, what.owner.id, verb, owner_word(what.owner), words...);
  };
  switch (what.verb) {
    case FenceVerb::renew:
      return call("R", what.lease);
    case FenceVerb::complete:
      return call(what.response.unfinished() ? "P" : "D", answer_word(what.response));
    case FenceVerb::release:
      return call("L");
    case FenceVerb::hold:
    case FenceVerb::hold_found:
      break;
  }
  return call("H", what.verb == FenceVerb::hold_found);
}

// The calls, and the loop's thread with everything on it.
class RedisStore final : public Store {
 public:
  // Reads what the URL points to (password, certificates); connects to nothing yet.
  static Result<std::unique_ptr<RedisStore>> make(const RedisOptions& options) try {
    Result<RedisUrl> url = parse_url(options.url);
    if (!url) return std::move(url).fault();
    Result<ConnectionOptions> connections = connection_options(*std::move(url), options.call_timeout);
    if (!connections) return std::move(connections).fault();
    return std::make_unique<RedisStore>(options, *std::move(connections));
  } catch (const std::system_error& error) {
    return unavailable(error.what());
  }

  RedisStore(const RedisOptions& options, ConnectionOptions connections)
      : room_(options.queue_limits), state_(options, std::move(connections)) {}

  ~RedisStore() override {
    if (host_ != nullptr) write_from(nullptr);
    // Every call that waits is answered; what is in the middle of something is dropped with the loop.
    state_.loop.post([this] {
      upkeep_.stop();
      announcements_.stop();
      dispatcher_.stop();
      servers_.stop();
      // One turn later, so that the tasks that waited for an answer have had it.
      state_.loop.post([this] { state_.loop.stop(); });
    });
    thread_.join();
  }

  // Blocks until the servers are there, and then until the task that `start` makes is over. Once.
  template <class Start>
  auto when_ready(Start start) {
    using Answer = typename decltype(start(*this, MonotonicTime()))::Value;
    std::promise<Answer> promise;
    run_on(
        state_.loop, [&] { return start_servers(start); },
        [&promise](Answer answer) { promise.set_value(std::move(answer)); });
    return promise.get_future().get();
  }

  Task<Status> open_on_loop(MonotonicTime deadline) {
    // An evicting server is no store to begin with; when it becomes one later, claims are refused until it is mended.
    const Status usable = state_.may_claim();
    if (!usable) co_return invalid(usable.fault().message);
    Status status = co_await upkeep_.adopt_store();
    while (!status && status.fault().kind == FaultKind::unavailable && Clock::now() < deadline) {
      co_await sleep_for(state_.loop, kPauseAtStart); // a slot or a primary has just moved
      status = co_await upkeep_.adopt_store();
    }
    if (!status) co_return status;
    spawn(upkeep_.run());
    spawn(announcements_.run());
    co_await announcements_.until_first_attempt(deadline);
    co_return status;
  }

  MetaKeeper& meta() { return upkeep_.meta; }

  void claim(ClaimRequest request, Done<ClaimAnswer> done) override {
    if (Status may = state_.may_claim(); !may) return done(std::move(may).fault());
    CallPtr call = call_for(Script::records, request.id, request.abandoned == Abandoned::take_over ? "T" : "C",
                            encode_times(request), encode_identity(request));
    submit(std::move(call), ClaimCall{std::move(request), std::move(done)});
  }

  void find(const RecordId& id, Interest interest, Done<std::optional<Found>> done) override {
    if (interest == Interest::settling) announcements_.note_waiter();
    submit(call_for(Script::records, id, "F", interest == Interest::settling), FindCall{id, interest, std::move(done)});
  }

  void by_fence(FenceCall what) override {
    CallPtr call = call_for(what);
    what.response = {}; // it is among the arguments
    submit(std::move(call), std::move(what));
  }

  JobStore& jobs() override { return *jobs_; }

  void operate(const RecordId& id, OperatorAction action, StoredResponse response, Done<OperatorAnswer> done) override {
    CallPtr call = call_for(Script::records, id, "O", to_string(action), response.unfinished(), answer_word(response));
    submit(std::move(call), OperatorCall{id, action, {}, std::move(done)});
  }

  void list(const ListRequest& request, Done<std::vector<Listed>> done) override {
    run_on(
        state_.loop, [this, request] { return list_records(servers_, request); }, std::move(done));
  }
  void browse(const BrowseRequest& request, Done<BrowsePage> done) override {
    run_on(
        state_.loop, [this, request] { return browse_records(servers_, request); }, std::move(done));
  }
  void count_waiting(Done<WaitingKeys> done) override {
    run_on(
        state_.loop, [this] { return count_waiting_records(servers_); }, std::move(done));
  }

  void beat(GatewayBeat mine, Done<std::vector<GatewayBeat>> done) override {
    run_on(
        state_.loop, [this, mine = std::move(mine)] { return redis::beat(servers_, mine); }, std::move(done));
  }

  void announce_to(Listener listener) override { announcements_.tell(std::move(listener)); }
  std::size_t server_of(const RecordId& id) const override { return servers_.number_of(state_.names.partition_of(id)); }
  std::size_t servers() const override { return servers_.count(); }
  Time now() const override { return state_.now(); }
  const std::array<std::uint8_t, 32>& secret() const override { return state_.marker.secret; }
  Durability durability() const override { return state_.durability(); }
  Status healthy() const override { return state_.healthy(); }
  void write_from(Loop* loop) override {
    if (thread_.joinable()) {
      state_.loop.stop();
      thread_.join();
    }
    if (host_ != nullptr) host_->host(nullptr);
    host_ = loop;
    if (loop != nullptr) {
      loop->host(&state_.loop);
    } else {
      thread_ = std::thread([this] { state_.loop.run(); });
    }
  }
  // Estimated from what the servers tell every few seconds; counts all keys of the database.
  StoreStats stats() const override { return state_.stats(); }
  RateKeeper* rates() override { return rates_.get(); }

 private:
  void submit(CallPtr call, AnyCall what) {
    call->what = std::move(what);
    const auto* const fence = std::get_if<FenceCall>(&call->what);
    const bool has_body = fence != nullptr ? fence->verb == FenceVerb::complete
                                           : kind_of(call->what) == CallKind::begins_work ||
                                                 std::holds_alternative<OperatorCall>(call->what);
    std::optional<QueueRoom::Place> place = room_.admit(kind_of(call->what), has_body ? call->arguments.size() : 0);
    if (!place) return refuse(call->what, overloaded());
    call->place = *std::move(place);
    dispatcher_.submit(std::move(call));
  }
  template <class Start>
  auto start_servers(Start start) -> decltype(start(*this, MonotonicTime())) {
    const MonotonicTime deadline = Clock::now() + kPatienceAtStart;
    servers_.start();
    const Status ready = co_await servers_.until_ready(deadline);
    if (!ready) co_return ready.fault();
    auto answer = co_await start(*this, deadline);
    co_return answer;
  }

  QueueRoom room_;   // above the loop, which may still have calls when it ends
  StoreState state_; // has the loop, so that it goes after all that lives on it
  Servers servers_{state_, upkeep_};
  Dispatcher dispatcher_{state_, servers_, [this] { upkeep_.look_again(); }};
  Upkeep upkeep_{state_, servers_, dispatcher_};
  Announcements announcements_{state_, servers_};
  const std::unique_ptr<RateKeeper> rates_ = redis_rates(servers_);
  const std::unique_ptr<JobStore> jobs_ =
      redis_jobs(servers_, [this](CallPtr call, AnyCall what) { submit(std::move(call), std::move(what)); });
  Loop* host_ = nullptr; // runs the store's loop in place of the thread
  std::thread thread_{[this] { state_.loop.run(); }};
};

// What is asked of a store that need not be opened for it.
template <class Start>
auto ask_store(const RedisOptions& options, Start start) -> decltype(std::declval<RedisStore&>().when_ready(start)) {
  const Result<std::unique_ptr<RedisStore>> store = RedisStore::make(options);
  if (!store) return store.fault();
  return (*store)->when_ready(start);
}

} // namespace
} // namespace redis

using redis::ask_store;
using redis::RedisStore;

Result<std::unique_ptr<Store>> open_redis(const RedisOptions& options) {
  Result<std::unique_ptr<RedisStore>> store = RedisStore::make(options);
  if (!store) return std::move(store).fault();
  const Status opened =
      (*store)->when_ready([](RedisStore& on_loop, MonotonicTime deadline) { return on_loop.open_on_loop(deadline); });
  if (!opened) return opened.fault();
  return std::unique_ptr<Store>(*std::move(store));
}

Status reach_redis(const RedisOptions& options) {
  return ask_store(options, [](RedisStore& store, MonotonicTime) -> Task<Status> { return store.healthy(); });
}

Result<bool> redis_store_exists(const RedisOptions& options) {
  return ask_store(options, [](RedisStore& store, MonotonicTime) { return store.meta().exists(); });
}

Result<std::string> read_note_redis(const RedisOptions& options, StoreNote note) {
  return ask_store(options, [note](RedisStore& store, MonotonicTime) { return store.meta().read_note(note); });
}

Result<bool> write_note_redis(const RedisOptions& options, StoreNote note, const std::string& expected,
                              const std::string& next) {
  return ask_store(options,
                   [&](RedisStore& store, MonotonicTime) { return store.meta().write_note(note, expected, next); });
}

Status reseal_secret_redis(const RedisOptions& options) {
  return ask_store(options,
                   [&](RedisStore& store, MonotonicTime) { return store.meta().reseal_with(*options.sealer); });
}

Status accept_lost_memory_redis(const RedisOptions& options) {
  return ask_store(options, [](RedisStore& store, MonotonicTime) { return store.meta().accept_loss(); });
}

} // namespace oncekey
