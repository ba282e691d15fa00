#include "cli/serve.h"

#include "admin/admin.h"
#include "base/core_dumps.h"
#include "base/masked_url.h"
#include "cli/admin_token.h"
#include "cli/descriptors.h"
#include "cli/waiting_watch.h"
#include "delivery/inbox.h"
#include "delivery/outbox.h"
#include "gateway/gateway.h"
#include "gateway/trust_keeper.h"
#include "store/open_store.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <thread>
#include <utility>
#include <vector>

namespace oncekey {
namespace {

// What a store that can no longer keep its promise ends the process with; EX_IOERR of sysexits.h.
constexpr int kExitStoreFailed = 74;
constexpr std::chrono::milliseconds kDrainPoll{20};
constexpr std::chrono::milliseconds kAdminDrain{2000};
constexpr std::chrono::milliseconds kRoomEvery{250};

LogLevel level_of(std::string_view text) {
  if (text == "debug") return LogLevel::debug;
  if (text == "warning") return LogLevel::warning;
  if (text == "error") return LogLevel::error;
  return LogLevel::info;
}

// One event loop, one thread, and what runs on it.
struct Worker {
  asio::io_context context{1};
  asio::executor_work_guard<Executor> work{context.get_executor()};
  Timers timers{context};
  std::unique_ptr<UpstreamPool> upstream;
  std::unique_ptr<Gateway> gateway;
  std::unique_ptr<Inbox> inbox;
  std::unique_ptr<FrontDoor> front_door;
  std::thread thread;

  void start(const char* name) {
    thread = std::thread([this, name] {
      pthread_setname_np(pthread_self(), name);
      context.run();
    });
  }
  void stop() {
    asio::post(context, [this] {
      if (upstream) upstream->close_idle();
      timers.stop();
      work.reset();
      context.stop();
    });
    if (thread.joinable()) thread.join();
  }
};

UpstreamOptions upstream_options(const Config& config) {
  UpstreamOptions options;
  options.host = config.upstream.host;
  options.port = config.upstream.port;
  options.tls = config.upstream.scheme == UpstreamUrl::Scheme::https;
  options.ca_file = config.upstream_ca;
  options.connect_timeout = config.timeouts.connect;
  options.idle_timeout = config.timeouts.upstream_idle;
  options.max_header_bytes = config.limits.max_header_bytes;
  options.max_connections = config.limits.max_upstream_connections;
  return options;
}

ServerOptions server_options(const Config& config, std::shared_ptr<Shares> shares) {
  ServerOptions options;
  options.timeouts = {config.timeouts.request_headers, config.timeouts.request_body, config.timeouts.idle,
                      config.timeouts.write, config.limits.min_rate};
  options.max_header_bytes = config.limits.max_header_bytes;
  options.shares = std::move(shares);
  return options;
}

// For a listener that is not for clients.
std::shared_ptr<Shares> shares_of_few() {
  constexpr std::uint64_t kHeadBytesMax = 16u << 20;
  std::array<ShareLimit, kResources> limits{};
  // One address leaves half of them to the others.
  limits[static_cast<std::size_t>(Resource::connections)] = {kAdminConnectionsMax, kAdminConnectionsMax / 2,
                                                             kAdminConnectionsMax / 2, 0};
  limits[static_cast<std::size_t>(Resource::buffered_bytes)] = {kHeadBytesMax, kHeadBytesMax, kHeadBytesMax,
                                                                kHeadBytesMax};
  return std::make_shared<Shares>(limits);
}

// Looks four times a second how much room the store has left.
class RoomWatch {
 public:
  RoomWatch(GatewayShared& shared, Timers& timers) : shared_(shared), timer_(timers, [this] { look(); }) { look(); }

 private:
  void look() {
    timer_.after(kRoomEvery);
    const std::string& store = shared_.config.store;
    std::optional<StoreRoom::Seen> seen;
    if (const std::optional<std::string> folder = folder_of_store(store)) {
      seen = look_at_folder(*folder);
    } else {
      const StoreStats stats = shared_.store.stats();
      // A store in memory takes memory; one elsewhere tells its size, or 0 where it would have to count.
      seen = StoreRoom::Seen{store.starts_with("memory:") ? stats.bytes_in_memory : stats.bytes_on_disk, 0, 0};
    }
    if (!seen) return;
    shared_.room.look(*seen);
    const std::optional<std::string> shortage = shared_.room.shortage();
    if (shortage.has_value() == short_) return;
    short_ = shortage.has_value();
    if (short_) {
      shared_.log.error("store_full", {{"reason", *shortage},
                                       {"next",
                                        "new keys get 503 until there is room; replays, answers under way and "
                                        "requests without a key go on"}});
    } else {
      shared_.log.info("store_has_room_again", {});
    }
  }

  GatewayShared& shared_;
  Timer timer_;
  bool short_ = false;
};

int refuse_to_start(Log& log, const Fault& fault) {
  log.error("cannot_start", {{"reason", fault.message}});
  return 1;
}

Durability least_durability(const Config& config) {
  if (!config.require_durability) return Durability::none;
  return *config.require_durability == "power" ? Durability::power : Durability::process;
}

// Without a token in the configuration there is one in a file, which the first start makes.
Status find_admin_token(Config& config, Log& log) {
  if (!config.admin_token.empty()) return ok_status();
  const std::string file = admin_token_file(config.store);
  Result<std::string> token = file.empty() ? Result<std::string>(unavailable("neither XDG_STATE_HOME nor HOME is set"))
                                           : load_or_make_admin_token(file);
  if (token) {
    config.admin_token = *std::move(token);
    log.info("admin_token", {{"file", file}});
    return ok_status();
  }
  if (token.fault().kind == FaultKind::invalid) return token.fault();
  // Requests are served all the same; only operators are shut out.
  config.admin_token = new_admin_token();
  log.warning("admin_token_not_kept", {{"reason", token.fault().message},
                                       {"meaning", "the admin listener answers health and metrics only"},
                                       {"next", "set admin_token, or let this user write there"}});
  return ok_status();
}

// Not ready at once, no new connections, running requests end; then the loops stop. A second signal cuts it short.
class Shutdown {
 public:
  Shutdown(asio::io_context& context, GatewayShared& shared, Server& server, Server& admin, Log& log)
      : shared_(shared), server_(server), admin_(admin), log_(log), signals_(context, SIGTERM, SIGINT), poll_(context) {
    wait();
  }

  // Something else that must come to its end: told to begin with it, and asked whether it is over.
  void also(std::function<void()> begin, std::function<bool()> over) {
    others_.push_back({std::move(begin), std::move(over)});
  }

  bool clean() const { return clean_; }
  void on_finished(std::function<void()> then) { then_ = std::move(then); }

 private:
  void wait() {
    signals_.async_wait([this](const error_code& ec, int) {
      if (ec) return;
      if (shared_.draining.exchange(true)) {
        log_.warning("stopped", {{"reason", "second signal"}, {"connections", server_.connections()}});
        log_.flush();
        std::_Exit(1);
      }
      log_.info("draining", {{"connections", server_.connections()}});
      server_.drain();
      for (const Other& other : others_) other.begin();
      shared_.waiters.notify_all();
      deadline_ = std::chrono::steady_clock::now() + shared_.config.drain_timeout;
      poll();
      wait();
    });
  }

  void poll() {
    const MonotonicTime now = std::chrono::steady_clock::now();
    const bool others_over =
        std::all_of(others_.begin(), others_.end(), [](const Other& other) { return other.over(); });
    const bool drained = server_.connections() == 0 && shared_.detached.load() == 0 && others_over;
    if ((drained || now >= deadline_) && !admin_draining_) {
      // Operators see the end of it: their listener goes last.
      clean_ = drained;
      admin_draining_ = true;
      deadline_ = now + kAdminDrain;
      admin_.drain();
    }
    if (admin_draining_ && (admin_.connections() == 0 || now >= deadline_)) {
      clean_ = clean_ && admin_.connections() == 0;
      then_();
      return;
    }
    poll_.expires_after(kDrainPoll);
    poll_.async_wait([this](const error_code& ec) {
      if (!ec) poll();
    });
  }

  GatewayShared& shared_;
  Server& server_;
  Server& admin_;
  Log& log_;
  asio::signal_set signals_;
  asio::steady_timer poll_;
  MonotonicTime deadline_;
  std::function<void()> then_;
  struct Other {
    std::function<void()> begin;
    std::function<bool()> over;
  };
  std::vector<Other> others_;
  bool admin_draining_ = false;
  bool clean_ = false;
};

} // namespace

int run_serve(Config config) {
  std::signal(SIGPIPE, SIG_IGN);
  // Whatever is made from here on is the owner's alone, RocksDB's files too.
  ::umask(S_IRWXG | S_IRWXO);
  if (config.core_dumps) allow_core_dumps();
  Log log(level_of(config.log_level));
  const std::size_t threads = config.threads != 0 ? config.threads : std::max(1u, std::thread::hardware_concurrency());
  if (const Status fits = fit_descriptors(config, threads, log); !fits) return refuse_to_start(log, fits.fault());
  for (const std::string& warning : warnings_of(config)) log.warning("config", {{"warning", warning}});

  StoreOptions store_options{
      log,
      [&log](const std::string& reason) {
        // Whether earlier writes are on disk is unknown now: no answer may leave any more.
        log.error("store_failed",
                  {{"reason", reason},
                   {"next", "the process ends without acknowledging anything; check the disk, then start again"}});
        log.flush();
        std::_Exit(kExitStoreFailed);
      },
      least_durability(config), config.trust_clock};
  auto store = open_store(config.store, store_options);
  if (!store) return refuse_to_start(log, store.fault());
  if (const Status known = find_admin_token(config, log); !known) return refuse_to_start(log, known.fault());

  GatewayShared shared(config, **store, log);
  DeliveryMetrics delivery_metrics(shared.metrics.registry());
  const bool delivers = !config.webhooks.empty() || !config.destinations.empty();
  Worker courier; // deliveries have a thread of their own: a slow receiver must not delay a payment
  std::unique_ptr<Deliverer> deliverer;
  if (delivers) {
    auto made = Deliverer::make(shared, delivery_metrics, courier.timers);
    if (!made) return refuse_to_start(log, made.fault());
    deliverer = std::move(made).value();
  }
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<Lane> lanes;
  for (std::size_t i = 0; i < threads; ++i) {
    auto worker = std::make_unique<Worker>();
    auto pool = UpstreamPool::make(upstream_options(config), worker->timers, shared.upstream_open);
    if (!pool) return refuse_to_start(log, pool.fault());
    worker->upstream = std::move(pool).value();
    worker->gateway = std::make_unique<Gateway>(shared, *worker->upstream, worker->timers);
    Handler* handler = worker->gateway.get();
    if (delivers) {
      auto inbox = Inbox::make(shared, delivery_metrics, *deliverer, worker->context);
      if (!inbox) return refuse_to_start(log, inbox.fault());
      worker->inbox = std::move(inbox).value();
      worker->front_door = std::make_unique<FrontDoor>(*worker->inbox, *worker->gateway);
      handler = worker->front_door.get();
    }
    lanes.push_back({worker->context, worker->timers, *handler});
    workers.push_back(std::move(worker));
  }
  ServerOptions public_options = server_options(config, shared.shares_owner);
  public_options.trusted_proxies = config.trusted_proxies;
  public_options.tls_cert = config.tls_cert;
  public_options.tls_key = config.tls_key;
  public_options.client_ca = config.client_ca;
  auto server =
      Server::listen(config.listen.host, config.listen.port, std::move(public_options), std::move(lanes), log);
  if (!server) return refuse_to_start(log, server.fault());

  // Operators get a thread of their own: a long listing must not delay a payment, nor the other way round.
  Worker operators;
  const RoomWatch room_watch(shared, operators.timers);
  const WaitingWatch waiting_watch(shared, operators.timers);
  Admin admin(shared, operators.timers);
  ServerOptions admin_options = server_options(config, shares_of_few());
  admin_options.tls_cert = config.admin_tls_cert;
  admin_options.tls_key = config.admin_tls_key;
  admin_options.setting_prefix = "admin_";
  auto admin_server = Server::listen(config.admin.host, config.admin.port, std::move(admin_options),
                                     {{operators.context, operators.timers, admin}}, log);
  if (!admin_server) return refuse_to_start(log, admin_server.fault());
  admin.serves(**server);

  std::unique_ptr<Outbox> outbox;
  std::unique_ptr<Server> outbox_server;
  if (config.outbox) {
    outbox = std::make_unique<Outbox>(shared, delivery_metrics, *deliverer, courier.context);
    auto listening = Server::listen(config.outbox->host, config.outbox->port, server_options(config, shares_of_few()),
                                    {{courier.context, courier.timers, *outbox}}, log);
    if (!listening) return refuse_to_start(log, listening.fault());
    outbox_server = std::move(listening).value();
  }

  std::unique_ptr<TrustKeeper> keeper;
  if (!shared.trust.empty()) {
    auto made = TrustKeeper::make(shared, operators.timers);
    if (!made) return refuse_to_start(log, made.fault());
    keeper = std::move(made).value();
  }
  // After the keeper has noted what the files look like: a change from here on is read again.
  if (const Status loaded = shared.trust.load_files(); !loaded) return refuse_to_start(log, loaded.fault());

  Shutdown shutdown(operators.context, shared, **server, **admin_server, log);
  shutdown.on_finished([&] {
    operators.timers.stop();
    operators.work.reset();
    operators.context.stop();
  });

  if (deliverer) {
    shutdown.also(
        [&] {
          if (outbox_server) outbox_server->drain();
          asio::post(courier.context, [&] { deliverer->stop(); });
        },
        [&] { return deliverer->over() && (!outbox_server || outbox_server->connections() == 0); });
  }

  if (keeper) {
    // Both on the loop of the operators, which is that of the signals too.
    shutdown.also([&] { keeper->stop(); }, [&] { return keeper->over(); });
    asio::post(operators.context, [&] { keeper->start(); });
  }

  (*server)->start();
  (*admin_server)->start();
  if (outbox_server) outbox_server->start();
  for (const auto& worker : workers) worker->start("gateway");
  if (deliverer) {
    asio::post(courier.context, [&] { deliverer->start(); });
    courier.start("deliverer");
  }
  log.info("listening", {{"address", (*server)->address()},
                         {"admin", (*admin_server)->address()},
                         {"outbox", outbox_server ? outbox_server->address() : "off"},
                         {"store", masked_url(config.store)},
                         {"durability", to_string((*store)->durability())},
                         {"threads", threads}});
  operators.context.run();

  if (!shutdown.clean()) {
    // Requests are still under way: their records say so, and a restart goes on from there.
    log.warning("stopped", {{"reason", "drain_timeout passed"}, {"connections", (*server)->connections()}});
    log.flush();
    std::_Exit(1);
  }
  for (const auto& worker : workers) worker->stop();
  courier.stop();
  log.info("stopped", {{"reason", "drained"}});
  return 0;
}

} // namespace oncekey
