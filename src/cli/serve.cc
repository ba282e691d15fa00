#include "cli/serve.h"

#include "admin/admin.h"
#include "base/core_dumps.h"
#include "base/durations.h"
#include "base/masked_url.h"
#include "cli/admin_token.h"
#include "cli/descriptors.h"
#include "cli/identity_memory.h"
#include "cli/reload.h"
#include "cli/store_watch.h"
#include "delivery/inbox.h"
#include "delivery/outbox.h"
#include "gateway/access_log.h"
#include "gateway/gateway.h"
#include "gateway/trust_keeper.h"
#include "net/signals.h"
#include "store/open_store.h"

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
// For connections of tunnels that were closed at the end of a drain to be gone.
constexpr std::chrono::milliseconds kTunnelEnd{2000};
constexpr std::chrono::milliseconds kRoomEvery{250};

// One event loop, one thread, and what runs on it.
struct Worker {
  Loop loop;
  UpstreamPools upstreams;
  std::unique_ptr<Gateway> gateway;
  std::unique_ptr<Handler> inbox;
  std::unique_ptr<AccessLog> access_log;
  std::thread thread;

  void start(const char* name) {
    thread = std::thread([this, name] {
      pthread_setname_np(pthread_self(), name);
      loop.run();
    });
  }
  void stop() {
    loop.post([this] {
      for (const auto& upstream : upstreams) upstream->close_idle();
      loop.stop();
    });
    if (thread.joinable()) thread.join();
  }
};

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
  RoomWatch(GatewayShared& shared, Loop& timers) : shared_(shared), timer_(timers, [this] { look(); }) { look(); }

 private:
  void look() {
    timer_.after(kRoomEvery);
    const std::string& store = shared_.config().store;
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

// Not ready at once; for timeouts.lame_duck everything is served as before. Then a drain: no new connections, running
// requests end, and when their time is over WebSockets are closed; then the loops stop. Each further signal cuts short
// what is under way, the lame duck or the drain.
class Shutdown {
 public:
  Shutdown(Loop& loop, GatewayShared& shared, Server& server, Server& admin, Log& log)
      : loop_(loop),
        shared_(shared),
        server_(server),
        admin_(admin),
        log_(log),
        lame_duck_(loop, [this] { drain(); }),
        signals_(loop, {SIGTERM, SIGINT}, [this] { signalled(); }) {}

  // Something else that must come to its end: told to begin with it, and asked whether it is over.
  void also(std::function<void()> begin, std::function<bool()> over) {
    others_.push_back({std::move(begin), std::move(over)});
  }

  bool clean() const { return clean_; }
  void on_finished(std::function<void()> then) { then_ = std::move(then); }
  void on_tunnels_end(std::function<void()> end) { end_tunnels_ = std::move(end); }

 private:
  void signalled() {
    if (!shared_.leaving.exchange(true)) {
      leave();
    } else if (!shared_.draining.load()) {
      drain();
    } else {
      log_.warning("stopped", {{"reason", "second signal"}, {"connections", server_.connections()}});
      log_.flush();
      std::_Exit(1);
    }
  }

  void leave() {
    const Millis lame_duck = shared_.config().timeouts.lame_duck;
    if (lame_duck == Millis(0)) return drain();
    log_.info("leaving", {{"connections", server_.connections()}, {"lame_duck", format_duration(lame_duck)}});
    server_.leave();
    lame_duck_.after(lame_duck);
  }

  void drain() {
    lame_duck_.clear();
    shared_.draining.store(true);
    log_.info("draining", {{"connections", server_.connections()}});
    server_.drain();
    for (const Other& other : others_) other.begin();
    shared_.waiters.notify_all();
    deadline_ = std::chrono::steady_clock::now() + shared_.config().drain_timeout;
    spawn(poll());
  }

  Task<void> poll() {
    while (!over()) co_await sleep_for(loop_, kDrainPoll);
    then_();
  }

  // Whether there is nothing left to wait for.
  bool over() {
    const MonotonicTime now = std::chrono::steady_clock::now();
    const bool others_over =
        std::all_of(others_.begin(), others_.end(), [](const Other& other) { return other.over(); });
    const bool drained = server_.connections() == 0 && shared_.detached.load() == 0 && others_over;
    if (now >= deadline_ && !admin_draining_ && shared_.tunnels.load() > 0 && !tunnels_ended_) {
      tunnels_ended_ = true;
      log_.info("tunnels_closed", {{"tunnels", shared_.tunnels.load()}, {"reason", "drain_timeout passed"}});
      deadline_ = now + kTunnelEnd;
      end_tunnels_();
    }
    if ((drained || now >= deadline_) && !admin_draining_) {
      // Operators see the end of it: their listener goes last.
      clean_ = drained;
      admin_draining_ = true;
      deadline_ = now + kAdminDrain;
      admin_.drain();
    }
    if (admin_draining_ && (admin_.connections() == 0 || now >= deadline_)) {
      clean_ = clean_ && admin_.connections() == 0;
      return true;
    }
    return false;
  }

  Loop& loop_;
  GatewayShared& shared_;
  Server& server_;
  Server& admin_;
  Log& log_;
  MonotonicTime deadline_;
  std::function<void()> then_;
  std::function<void()> end_tunnels_;
  struct Other {
    std::function<void()> begin;
    std::function<bool()> over;
  };
  std::vector<Other> others_;
  bool tunnels_ended_ = false;
  bool admin_draining_ = false;
  bool clean_ = false;
  Timer lame_duck_;
  SignalWatch signals_;
};

} // namespace

int run_serve(const ServeFlags& flags, ReadConfig read) {
  Config config = read.config;
  std::signal(SIGPIPE, SIG_IGN);
  // Until there is something to reload, and a log to open again.
  std::signal(SIGUSR1, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);
  // Whatever is made from here on is the owner's alone, RocksDB's files too.
  ::umask(S_IRWXG | S_IRWXO);
  if (config.core_dumps) allow_core_dumps();
  const LogFormat log_format = config.log_format == "json" ? LogFormat::json : LogFormat::text;
  Log log(log_level_of(config.log_level), log_format);
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
  const IdentityChange change = flags.accept_identity_change ? IdentityChange::accepted : IdentityChange::refused;
  {
    const auto basis = identity_basis_of(config);
    if (!basis) return refuse_to_start(log, basis.fault());
    if (const Status known = check_identity(config.store, *basis, change, log); !known)
      return refuse_to_start(log, known.fault());
  }
  if (const Status known = find_admin_token(config, log); !known) return refuse_to_start(log, known.fault());

  std::unique_ptr<LineFile> access_log;
  if (config.access_log != "off") {
    auto opened = LineFile::open(config.access_log, log);
    if (!opened) return refuse_to_start(log, invalid("access_log: " + opened.fault().message));
    access_log = std::move(opened).value();
  }

  GatewayShared shared(config, **store, log);
  DeliveryMetrics delivery_metrics(shared.metrics.registry());
  const bool delivers = !config.webhooks.empty() || !config.destinations.empty();
  Worker courier; // deliveries have a thread of their own: a slow receiver must not delay a payment
  std::unique_ptr<Couriers> couriers;
  if (delivers) {
    auto made = Couriers::make(shared, delivery_metrics, courier.loop);
    if (!made) return refuse_to_start(log, made.fault());
    couriers = std::move(made).value();
  }
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<Lane> lanes;
  for (std::size_t i = 0; i < threads; ++i) {
    auto worker = std::make_unique<Worker>();
    auto pools = make_pools(config, shared.upstreams, worker->loop, shared.upstream_open);
    if (!pools) return refuse_to_start(log, pools.fault());
    worker->upstreams = std::move(pools).value();
    worker->gateway = std::make_unique<Gateway>(shared, worker->upstreams, worker->loop);
    Handler* handler = worker->gateway.get();
    if (delivers) {
      auto inbox = make_inbox(shared, delivery_metrics, *couriers, worker->loop, *handler);
      if (!inbox) return refuse_to_start(log, inbox.fault());
      worker->inbox = std::move(inbox).value();
      handler = worker->inbox.get();
    }
    if (access_log) {
      worker->access_log = std::make_unique<AccessLog>(*handler, *access_log, log_format);
      handler = worker->access_log.get();
    }
    lanes.push_back({worker->loop, *handler});
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
  const RoomWatch room_watch(shared, operators.loop);
  StoreWatch store_watch(shared, delivery_metrics, operators.loop);
  Admin admin(shared, operators.loop);
  ServerOptions admin_options = server_options(config, shares_of_few());
  admin_options.tls_cert = config.admin_tls_cert;
  admin_options.tls_key = config.admin_tls_key;
  admin_options.setting_prefix = "admin_";
  auto admin_server =
      Server::listen(config.admin.host, config.admin.port, std::move(admin_options), {{operators.loop, admin}}, log);
  if (!admin_server) return refuse_to_start(log, admin_server.fault());
  admin.serves(**server);

  std::unique_ptr<Handler> outbox;
  std::unique_ptr<Server> outbox_server;
  if (config.outbox) {
    outbox = make_outbox(shared, delivery_metrics, *couriers, courier.loop);
    auto listening = Server::listen(config.outbox->host, config.outbox->port, server_options(config, shares_of_few()),
                                    {{courier.loop, *outbox}}, log);
    if (!listening) return refuse_to_start(log, listening.fault());
    outbox_server = std::move(listening).value();
  }

  std::unique_ptr<TrustKeeper> keeper;
  if (!shared.trust.empty()) {
    auto made = TrustKeeper::make(shared, operators.loop);
    if (!made) return refuse_to_start(log, made.fault());
    keeper = std::move(made).value();
  }
  // After the keeper has noted what the files look like: a change from here on is read again.
  if (const Status loaded = shared.trust.load_files(); !loaded) return refuse_to_start(log, loaded.fault());

  // A start that has failed before this changes nothing: the gateway of before starts again as it did.
  const auto basis = identity_basis_of(config);
  if (!basis) return refuse_to_start(log, basis.fault());
  if (const Status known = remember_identity(config.store, *basis, change, log); !known)
    return refuse_to_start(log, known.fault());

  // After the access log was moved away by a log rotation.
  const SignalWatch reopen_log(operators.loop, {SIGUSR1}, [&] {
    if (access_log) access_log->reopen();
  });
  Shutdown shutdown(operators.loop, shared, **server, **admin_server, log);
  shutdown.on_finished([&] { operators.loop.stop(); });

  shutdown.on_tunnels_end([&] {
    for (const auto& worker : workers) worker->loop.post([&worker] { worker->gateway->end_tunnels(); });
  });

  if (couriers) {
    shutdown.also(
        [&] {
          if (outbox_server) outbox_server->drain();
          courier.loop.post([&] { couriers->stop(); });
        },
        [&] { return couriers->over() && (!outbox_server || outbox_server->connections() == 0); });
  }

  // On the loop of the operators, which is that of the signals too.
  shutdown.also([&] { store_watch.stop(); }, [&] { return store_watch.over(); });
  store_watch.start(); // an embedded store has counted before anything listens

  if (keeper) {
    // Both on the loop of the operators, which is that of the signals too.
    shutdown.also([&] { keeper->stop(); }, [&] { return keeper->over(); });
    operators.loop.post([&] { keeper->start(); });
  }

  const auto trust_upstream = [&] {
    for (const auto& worker : workers) {
      worker->loop.post([&log, &pools = worker->upstreams] {
        for (const auto& pool : pools) {
          if (const Status read_anew = pool->read_trusted_certificates(); !read_anew)
            log.warning("upstream_ca_unusable", {{"reason", read_anew.fault().message}});
        }
      });
    }
  };
  Reloader reloader(operators.loop, flags, std::move(read), *basis,
                    {shared, **server, **admin_server, keeper.get(), trust_upstream}, log);

  (*server)->start();
  (*admin_server)->start();
  if (outbox_server) outbox_server->start();
  for (const auto& worker : workers) worker->start("gateway");
  if (couriers) {
    courier.loop.post([&] { couriers->start(); });
    courier.start("couriers");
  }
  log.info("listening", {{"address", (*server)->address()},
                         {"admin", (*admin_server)->address()},
                         {"outbox", outbox_server ? outbox_server->address() : "off"},
                         {"store", masked_url(config.store)},
                         {"durability", to_string((*store)->durability())},
                         {"threads", threads}});
  operators.loop.run();

  if (!shutdown.clean()) {
    // Requests are still under way: their records say so, and a restart goes on from there.
    log.warning("stopped", {{"reason", "drain_timeout passed"}, {"connections", (*server)->connections()}});
    log.flush();
    if (access_log) access_log->flush();
    std::_Exit(1);
  }
  for (const auto& worker : workers) worker->stop();
  courier.stop();
  log.info("stopped", {{"reason", "drained"}});
  return 0;
}

} // namespace oncekey
