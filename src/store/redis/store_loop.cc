#include "store/redis/store_loop.h"

#include <fmt/format.h>

#include <future>
#include <utility>

namespace oncekey::redis {
namespace {

// How long a server that is not there yet is waited for at start.
constexpr std::chrono::seconds kPatienceAtStart{5};
constexpr Millis kPauseAtStart{50};

Task<void> fulfil(Task<Status> task, std::promise<Status>& promise) {
  Status status = co_await std::move(task);
  promise.set_value(std::move(status));
}

} // namespace

Result<std::unique_ptr<StoreLoop>> StoreLoop::make(const RedisOptions& options) try {
  Result<RedisUrl> url = parse_url(options.url);
  if (!url) return std::move(url).fault();
  Result<ConnectionOptions> connections = connection_options(*url);
  if (!connections) return std::move(connections).fault();
  connections->replicas = url->wait;
  // Half, so that its answer is still in time.
  connections->replicas_timeout = url->call_timeout.value_or(options.call_timeout) / 2;
  return std::unique_ptr<StoreLoop>(new StoreLoop(options, *std::move(url), *std::move(connections)));
} catch (const std::system_error& error) {
  return unavailable(error.what());
}

StoreLoop::StoreLoop(const RedisOptions& options, RedisUrl url, ConnectionOptions connections)
    : log_(options.log),
      url_(std::move(url)),
      call_timeout_(url_.call_timeout.value_or(options.call_timeout)),
      clock_(options.clock),
      names_(url_.prefix, url_.cluster ? kClusterPartitions : 1),
      connection_options_(std::move(connections)),
      state_(log_, to_string(url_.hosts.front())),
      servers_(loop_, url_, connection_options_, call_timeout_, names_, *this),
      meta_(loop_, servers_, names_, call_timeout_),
      dispatcher_(loop_, servers_, state_, names_, {call_timeout_, url_.wait > 0, clock_},
                  [this] { upkeep_.look_again(); }),
      upkeep_(loop_, log_, url_, servers_, dispatcher_, meta_, state_, names_, call_timeout_),
      announcements_(loop_, servers_, connection_options_, url_, names_, call_timeout_),
      thread_([this] { loop_.run(); }) {}

StoreLoop::~StoreLoop() {
  // Every call that waits is answered; what is in the middle of something is dropped with the loop.
  loop_.post([this] {
    upkeep_.stop();
    announcements_.stop();
    dispatcher_.stop();
    servers_.stop();
    // One turn later, so that the tasks that waited for an answer have had it.
    loop_.post([this] { loop_.stop(); });
  });
  thread_.join();
}

template <class Start>
Status StoreLoop::block_on(Start start) {
  std::promise<Status> promise;
  std::future<Status> status = promise.get_future();
  loop_.post([&] { spawn(fulfil(start(), promise)); });
  return status.get();
}

Status StoreLoop::open_store() {
  return block_on([this] { return open_on_loop(); });
}
Status StoreLoop::accept_loss() {
  return block_on([this] { return accept_on_loop(); });
}
Status StoreLoop::reach() {
  return block_on([this] { return reach_on_loop(); });
}
Status StoreLoop::read_identity(std::string& text) {
  return block_on([&] { return read_identity_on_loop(text); });
}
Status StoreLoop::write_identity(const std::string& expected, const std::string& next, bool& written) {
  return block_on([&] { return write_identity_on_loop(expected, next, written); });
}

Task<Status> StoreLoop::reach_on_loop() {
  servers_.start();
  Status status = co_await servers_.until_ready(Clock::now() + kPatienceAtStart);
  if (status) status = state_.may_claim();
  co_return status;
}

Task<Status> StoreLoop::read_identity_on_loop(std::string& text) {
  servers_.start();
  Status status = co_await servers_.until_ready(Clock::now() + kPatienceAtStart);
  if (status) status = co_await meta_.read_identity(text);
  co_return status;
}

Task<Status> StoreLoop::write_identity_on_loop(std::string expected, std::string next, bool& written) {
  servers_.start();
  Status status = co_await servers_.until_ready(Clock::now() + kPatienceAtStart);
  if (status) status = co_await meta_.write_identity(std::move(expected), std::move(next), written);
  co_return status;
}

Task<Status> StoreLoop::open_on_loop() {
  const MonotonicTime deadline = Clock::now() + kPatienceAtStart;
  servers_.start();
  Status status = co_await servers_.until_ready(deadline);
  if (!status) co_return status;
  // An evicting server is no store to begin with; when it becomes one later, claims are refused until it is mended.
  Status usable = state_.may_claim();
  if (!usable) co_return invalid(usable.fault().message);
  status = co_await upkeep_.adopt_store();
  while (!status && status.fault().kind == FaultKind::unavailable && Clock::now() < deadline) {
    co_await sleep_for(loop_, kPauseAtStart); // a slot or a primary has just moved
    status = co_await upkeep_.adopt_store();
  }
  if (!status) co_return status;
  spawn(upkeep_.run());
  spawn(announcements_.run());
  co_await announcements_.until_first_attempt(deadline);
  co_return status;
}

Task<Status> StoreLoop::accept_on_loop() {
  servers_.start();
  Status status = co_await servers_.until_ready(Clock::now() + kPatienceAtStart);
  if (status) status = co_await meta_.accept_loss();
  co_return status;
}

Task<Status> StoreLoop::prepare(const std::shared_ptr<RedisConnection>& connection) {
  return upkeep_.prepare(connection);
}

void StoreLoop::link_ready(const Host& host) {
  log_.info("store_connected", {{"server", to_string(host)}});
  state_.reachable(servers_.any_ready());
}

void StoreLoop::link_lost(const Host& host, const std::string& why) {
  log_.warning("store_connection_lost", {{"server", to_string(host)}, {"reason", why}});
  state_.reachable(servers_.any_ready());
  servers_.refresh_soon();
}

} // namespace oncekey::redis
