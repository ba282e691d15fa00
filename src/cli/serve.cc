#include "admin/admin.h"
#include "admin/audit_lines.h"
#include "base/durations.h"
#include "base/enum_name.h"
#include "base/masked_url.h"
#include "base/private_files.h"
#include "cli/admin_token.h"
#include "cli/audit_setup.h"
#include "cli/descriptors.h"
#include "cli/handover.h"
#include "cli/reload.h"
#include "cli/service_manager.h"
#include "cli/store_watch.h"
#include "cli/subcommand.h"
#include "config/sealing_key_file.h"
#include "delivery/inbox.h"
#include "delivery/outbox.h"
#include "gateway/access_log.h"
#include "gateway/gateway.h"
#include "gateway/tracing.h"
#include "store/open_store.h"

#include <pthread.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>

namespace oncekey {
namespace {

// What a store that can no longer keep its promise ends the process with; EX_IOERR of sysexits.h.
constexpr int kExitStoreFailed = 74;
constexpr std::chrono::milliseconds kDrainPoll{20};
constexpr std::chrono::milliseconds kAdminDrain{2000};
// For connections of tunnels that were closed at the end of a drain to be gone.
constexpr std::chrono::milliseconds kTunnelEnd{2000};
constexpr std::chrono::milliseconds kRoomEvery{250};
// Beyond what the running gateway may take for its requests, for closing the store.
constexpr std::chrono::seconds kStoreCloses{30};
constexpr std::chrono::milliseconds kStoreAskedEvery{50};

// One event loop, one thread, and what runs on it.
struct Worker {
  Loop loop;
  UpstreamPools upstreams;
  std::unique_ptr<Gateway> gateway;
  std::unique_ptr<Handler> inbox;
  std::unique_ptr<Tracing> tracing;
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
    const StoreStats stats = shared_.store.stats();
    std::optional<StoreRoom::Seen> seen;
    if (const std::optional<std::string> folder = folder_of_store(store)) {
      seen = look_at_disk(*folder, stats.bytes_on_disk);
    } else {
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

// Tells the service manager, while every event loop turns, that the gateway is alive.
class Watchdog {
 public:
  Watchdog(const ServiceManager& manager, Loop& timers, std::vector<Loop*> loops)
      : manager_(manager), loops_(std::move(loops)), timer_(timers, [this] { look(); }) {
    if (manager_.watchdog()) look();
  }

 private:
  void look() {
    timer_.after(*manager_.watchdog() / 3);
    if (silent_.load() > 0) return; // a loop has not had a turn since the last look
    manager_.alive();
    silent_.store(loops_.size());
    for (Loop* const loop : loops_) loop->post([this] { silent_.fetch_sub(1); });
  }

  const ServiceManager& manager_;
  const std::vector<Loop*> loops_;
  std::atomic<std::size_t> silent_ = 0;
  Timer timer_;
};

// Another gateway asks for the sockets of this one: what is left to do once the store is closed.
struct HandedOver {
  HandoverOffer::Granted granted;
  std::vector<IdleConnection> connections;
};

// Whether an inherited socket is bound where the configuration says.
bool is_bound_to(const Descriptor& socket, const Address& address) {
  SocketAddress bound;
  if (::getsockname(socket.number(), bound.get(), &bound.length) != 0) return false;
  const auto wanted = parse_ip(address.host == "localhost" ? "127.0.0.1" : address.host, address.port);
  return wanted && wanted->text() == bound.text();
}

// What can be checked of a start without the store, while another gateway has it. A gateway that cannot start must not
// make the running one stop.
Status check_before_taking_over(const ServeFlags& flags, const Config& config, const Sealer* sealer, Log& log) {
  if (config.store == "memory:") {
    return invalid(
        "--take-over needs a store that outlives the process: memory: forgets all keys, and retries would be executed "
        "again");
  }
  if (config.listen.port == 0) return invalid("--take-over needs a port in listen, to find the running gateway by");
  const ReadConfig read = read_config(flags, NamedFiles::looked_at);
  if (!read.findings.empty()) return invalid(shown(read.findings.front(), read.file_name));
  if (Status format = check_store_format(config.store); !format) return format;
  if (Status opened = check_sealed_secret(config.store, sealer); !opened) return opened;
  const Result<IdentityBasis> basis = identity_basis_of(config);
  if (!basis) return basis.fault();
  const IdentityChange change = flags.accept_identity_change ? IdentityChange::accepted : IdentityChange::refused;
  return remember_identity(config.store, *basis, change, log, Write::no);
}

// As open_store(). An embedded store that another process has open is waited for until that moment.
Result<std::unique_ptr<Store>> open_store_until(const std::string& url, const StoreOptions& options,
                                                MonotonicTime due) {
  for (bool first = true;; first = false) {
    Result<std::unique_ptr<Store>> store = open_store(url, options);
    const bool taken = !store && store.fault().kind == FaultKind::conflict && folder_of_store(url).has_value();
    if (!taken || std::chrono::steady_clock::now() >= due) return store;
    if (first) options.log.info("store_in_use", {{"reason", store.fault().message}, {"next", "it is waited for"}});
    std::this_thread::sleep_for(kStoreAskedEvery);
  }
}

// Not ready at once; for timeouts.lame_duck everything is served as before. Then a drain: no new connections, running
// requests end, and when their time is over WebSockets are closed; then the loops stop. Each further signal cuts short
// what is under way, the lame duck or the drain.
class Shutdown {
 public:
  Shutdown(Loop& loop, GatewayShared& shared, Server& server, Server& admin, const ServiceManager& manager)
      : loop_(loop),
        shared_(shared),
        server_(server),
        admin_(admin),
        manager_(manager),
        lame_duck_(loop, [this] { drain(); }),
        signals_(loop, {SIGTERM, SIGINT}, [this] { signalled(); }) {}

  // Something else that must come to its end: told to begin with it, and asked whether it is over.
  void also(std::function<void()> begin, std::function<bool()> over) {
    others_.push_back({std::move(begin), std::move(over)});
  }

  // Another gateway takes the sockets over: as for a signal, but idle connections are kept for it.
  // `clients_wait`: until the store is free, so that WebSockets end at once.
  void hand_over(bool clients_wait) {
    if (shared_.leaving.exchange(true)) return;
    idle_ = IdleConnections::keep;
    clients_wait_ = clients_wait;
    manager_.stopping("handing over to another process");
    // Connections with TLS cannot be kept: their clients learn by their answers to make new ones.
    if (shared_.config().tls_cert.empty()) return drain();
    leave();
  }
  IdleConnections idle() const { return idle_; }

  bool clean() const { return clean_; }
  void on_finished(std::function<void()> then) { then_ = std::move(then); }
  void on_tunnels_end(std::function<void()> end) { end_tunnels_ = std::move(end); }

 private:
  void signalled() {
    if (!shared_.leaving.exchange(true)) {
      manager_.stopping("requests under way end");
      leave();
    } else if (!shared_.draining.load()) {
      drain();
    } else if (idle_ == IdleConnections::keep && !std::exchange(signalled_once_, true)) {
      // It drains for another gateway already, which the sender of the signal may not know.
    } else {
      shared_.log.warning("stopped", {{"reason", "second signal"}, {"connections", server_.connections()}});
      shared_.log.flush();
      std::_Exit(1);
    }
  }

  void leave() {
    const Millis lame_duck = shared_.config().timeouts.lame_duck;
    if (lame_duck == Millis(0)) return drain();
    shared_.log.info("leaving", {{"connections", server_.connections()}, {"lame_duck", format_duration(lame_duck)}});
    server_.leave();
    lame_duck_.after(lame_duck);
  }

  void drain() {
    lame_duck_.clear();
    shared_.draining.store(true);
    shared_.log.info("draining", {{"connections", server_.connections()}});
    server_.drain(idle_);
    for (const Other& other : others_) other.begin();
    // For a handover what they wait for comes to its end here, and so do they.
    if (idle_ == IdleConnections::close) {
      shared_.waits_end.store(true);
      shared_.waiters.notify_all();
    }
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
    const bool late = now >= deadline_;
    if ((late || clients_wait_) && !admin_draining_ && shared_.tunnels.load() > 0 && !tunnels_ended_) {
      tunnels_ended_ = true;
      shared_.log.info("tunnels_closed", {{"tunnels", shared_.tunnels.load()},
                                          {"reason", late ? "drain_timeout passed" : "clients wait for the handover"}});
      if (late) deadline_ = now + kTunnelEnd;
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
  const ServiceManager& manager_;
  IdleConnections idle_ = IdleConnections::close;
  bool clients_wait_ = false;
  bool signalled_once_ = false; // while it hands over
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

LogFormat log_format_of(const Config& config) {
  return config.log_format == "json" ? LogFormat::json : LogFormat::text;
}

// Until a signal ends it, or another gateway takes over. Returns the exit code; the store is closed.
int serve(const ServeFlags& flags, ReadConfig read, Log& log, std::optional<HandedOver>& handed_over) {
  Config config = read.config;
  const LogFormat log_format = log_format_of(config);
  const ServiceManager manager;
  const auto refuse = [&log](const Fault& fault) {
    log.error("cannot_start", {{"reason", fault.message}});
    return 1;
  };
  // Whether there is a value, which is taken; otherwise the start is refused.
  const auto took = [&](auto made, auto& into) {
    if (made) {
      into = std::move(made).value();
    } else {
      refuse(made.fault());
    }
    return made.ok();
  };
  const std::size_t threads = event_loops(config, std::thread::hardware_concurrency());
  if (const Status fits = fit_descriptors(config, threads, log); !fits) return refuse(fits.fault());
  for (const std::string& warning : warnings_of(config)) log.warning("config", {{"warning", warning}});

  std::unique_ptr<Sealer> sealer;
  if (!config.encryption_key_file.empty()) {
    std::unique_ptr<const SealingKeys> keys;
    if (!took(load_sealing_keys(config.encryption_key_file), keys)) return 1;
    log.info("encryption", {{"seals_with_key", keys->sealing_id()}, {"opens_with_keys", keys->ids()}});
    sealer = std::make_unique<Sealer>(std::move(keys));
  }
  InheritedSockets inherited;
  if (!took(InheritedSockets::from_environment(), inherited)) return 1;
  const bool is_embedded = folder_of_store(config.store).has_value();
  std::unique_ptr<TakeOver> taking;
  MonotonicTime store_due{};
  if (flags.take_over) {
    if (const Status may = check_before_taking_over(flags, config, sealer.get(), log); !may) return refuse(may.fault());
    const std::chrono::milliseconds patience = config.timeouts.lame_duck + config.drain_timeout + kStoreCloses;
    const auto listen_on =
        parse_ip(config.listen.host == "localhost" ? "127.0.0.1" : config.listen.host, config.listen.port);
    if (!took(TakeOver::ask(listen_on ? listen_on->text() : "", handover_name_of_store(config.store), log), taking))
      return 1;
    if (taking) inherited = taking->take_listeners();
    if (taking && is_embedded) {
      if (const Status released = taking->release_store(patience); !released) return refuse(released.fault());
    }
    store_due = std::chrono::steady_clock::now() + patience;
  }
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
      enum_named<Durability>(config.require_durability.value_or("none")).value_or(Durability::process), sealer.get(),
      config.trust_clock};
  std::unique_ptr<Store> store;
  if (!took(open_store_until(config.store, store_options, store_due), store)) return 1;
  const IdentityChange change = flags.accept_identity_change ? IdentityChange::accepted : IdentityChange::refused;
  IdentityBasis basis;
  if (!took(identity_basis_of(config), basis)) return 1;
  if (const Status known = remember_identity(config.store, basis, change, log, Write::no); !known)
    return refuse(known.fault());
  if (const Status known = find_admin_token(config, log); !known) return refuse(known.fault());

  std::unique_ptr<LineFile> access_log;
  if (config.access_log != "off") {
    auto opened = LineFile::open(config.access_log, log);
    if (!opened) return refuse(invalid("access_log: " + opened.fault().message));
    access_log = std::move(opened).value();
  }

  std::unique_ptr<AuditLog> audit; // goes after all that writes into it
  GatewayShared shared(config, *store, log);
  std::unique_ptr<SpanExporter> spans;
  const TraceResource resource{"oncekey", ONCEKEY_VERSION, shared.name};
  if (config.otlp_endpoint && !took(SpanExporter::open(*config.otlp_endpoint, resource, log), spans)) return 1;
  shared.spans = spans.get();
  DeliveryMetrics delivery_metrics(shared.metrics.registry());
  const bool delivers = !config.webhooks.empty() || !config.destinations.empty();
  Worker courier; // deliveries have a thread of their own: a slow receiver must not delay a payment
  std::unique_ptr<Couriers> couriers;
  if (delivers && !took(Couriers::make(shared, delivery_metrics, courier.loop), couriers)) return 1;
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<Lane> lanes;
  for (std::size_t i = 0; i < threads; ++i) {
    auto worker = std::make_unique<Worker>();
    if (!took(make_pools(config, shared.upstreams, worker->loop, shared.upstream_open), worker->upstreams)) return 1;
    worker->gateway = std::make_unique<Gateway>(shared, worker->upstreams, worker->loop);
    Handler* handler = worker->gateway.get();
    if (delivers) {
      if (!took(make_inbox(shared, delivery_metrics, *couriers, worker->loop, *handler), worker->inbox)) return 1;
      handler = worker->inbox.get();
    }
    if (spans) {
      worker->tracing = std::make_unique<Tracing>(*handler, *spans, config.trace_sample);
      handler = worker->tracing.get();
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
  const auto listen = [&](std::string_view name, const Address& address, ServerOptions options, std::vector<Lane> on) {
    Descriptor socket = inherited.take(name);
    // The service manager's word counts. A gateway that is replaced may have had another address.
    if (socket.open() && taking && !is_bound_to(socket, address)) socket = {};
    return Server::listen(address.host, address.port, std::move(options), std::move(on), log, std::move(socket));
  };
  std::unique_ptr<Server> server;
  if (!took(listen(kGatewaySocket, config.listen, std::move(public_options), std::move(lanes)), server)) return 1;

  // Operators get a thread of their own: a long listing must not delay a payment, nor the other way round.
  Worker operators;
  const RoomWatch room_watch(shared, operators.loop);
  StoreCounts store_counts;
  StoreWatch store_watch(shared, delivery_metrics, store_counts, operators.loop);
  Admin admin(shared, store_counts, operators.loop, ONCEKEY_VERSION);
  ServerOptions admin_options = server_options(config, shares_of_few());
  admin_options.tls_cert = config.admin_tls_cert;
  admin_options.tls_key = config.admin_tls_key;
  admin_options.setting_prefix = "admin_";
  admin_options.client_ca = config.admin_client_ca;
  admin_options.answer_headers = Admin::answer_headers();
  std::unique_ptr<Server> admin_server;
  if (!took(listen(kAdminSocket, config.admin, std::move(admin_options), {{operators.loop, admin}}), admin_server))
    return 1;
  admin.serves(*server);

  std::unique_ptr<Handler> outbox;
  std::unique_ptr<Server> outbox_server;
  if (config.outbox) {
    outbox = make_outbox(shared, delivery_metrics, *couriers, courier.loop);
    ServerOptions options = server_options(config, shares_of_few());
    if (!took(listen(kOutboxSocket, *config.outbox, std::move(options), {{courier.loop, *outbox}}), outbox_server))
      return 1;
  }

  for (const std::string& name : inherited.left())
    log.warning("socket_not_used", {{"name", name}, {"meaning", "no listener of the configuration has this name"}});
  inherited = {};

  std::unique_ptr<TrustKeeper> keeper;
  if (!shared.trust.empty() && !took(TrustKeeper::make(shared, operators.loop), keeper)) return 1;
  // After the keeper has noted what the files look like: a change from here on is read again.
  if (const Status loaded = shared.trust.load_files(); !loaded) return refuse(loaded.fault());

  // A start that has failed before this changes nothing: the gateway of before starts again as it did.
  if (!took(identity_basis_of(config), basis)) return 1;
  if (const Status known = remember_identity(config.store, basis, change, log); !known) return refuse(known.fault());

  if (!took(open_audit_log(config, shared.name, log), audit)) return 1;
  shared.audit = audit.get();
  if (audit) admin.audit().read_older([&shared](const RecordId& id) { return audit_of_record(shared, id); });
  if (audit && change == IdentityChange::accepted)
    audit->write({.event = "action", .who = "command line", .action = "accept_identity_change", .result = "done"});

  // After the logs were moved away by a log rotation.
  const SignalWatch reopen_log(operators.loop, {SIGUSR1}, [&] {
    if (access_log) access_log->reopen();
    if (audit) audit->reopen();
  });
  Shutdown shutdown(operators.loop, shared, *server, *admin_server, manager);
  shutdown.on_finished([&] { operators.loop.stop(); });
  shutdown.on_tunnels_end([&] {
    for (const auto& worker : workers) worker->loop.post([&worker] { worker->gateway->end_tunnels(); });
  });

  if (couriers) {
    shutdown.also(
        [&] {
          if (outbox_server) outbox_server->drain(shutdown.idle());
          courier.loop.post([&] { couriers->stop(); });
        },
        [&] { return couriers->over() && (!outbox_server || outbox_server->connections() == 0); });
  }

  // On the loop of the operators, which is that of the signals too.
  shutdown.also([&] { store_watch.stop(); }, [&] { return store_watch.over(); });
  store_watch.start(); // an embedded store has counted before anything listens
  shutdown.also([&] { admin.stop(); }, [&] { return admin.over(); });
  admin.start();

  shutdown.also([&] { admin.backups().stop(); }, [&] { return admin.backups().over(); });

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
  const std::string serving = fmt::format("serving {}, operators at {}", server->address(), admin_server->address());
  Reloader reloader(operators.loop, flags, std::move(read), basis,
                    {shared, *server, *admin_server, keeper.get(), sealer.get(), trust_upstream,
                     [&] { manager.reloading(); }, [&] { manager.ready(serving); }},
                    log);
  std::vector<Loop*> loops;
  for (const auto& worker : workers) loops.push_back(&worker->loop);
  if (couriers) loops.push_back(&courier.loop);
  const Watchdog watchdog(manager, operators.loop, std::move(loops));

  store->write_from(&workers.front()->loop);
  server->start();
  admin_server->start();
  if (outbox_server) outbox_server->start();
  for (const auto& worker : workers) worker->start("gateway");
  if (couriers) {
    courier.loop.post([&] { couriers->start(); });
    courier.start("couriers");
  }
  log.info("listening", {{"address", server->address()},
                         {"admin", admin_server->address()},
                         {"outbox", outbox_server ? outbox_server->address() : "off"},
                         {"store", masked_url(config.store)},
                         {"durability", to_string(store->durability())},
                         {"threads", threads}});
  manager.ready(serving);
  if (taking) {
    if (!is_embedded) taking->drain_other();
    taking->ready(operators.loop, [&](IdleConnection connection) {
      if (connection.listener == kGatewaySocket) server->adopt(std::move(connection.socket));
      if (connection.listener == kOutboxSocket && outbox_server) outbox_server->adopt(std::move(connection.socket));
    });
  }
  // With a name, once the gateway of before has let go of it.
  std::vector<HandoverOffer::Listening> offered{
      {std::string(kGatewaySocket), [&] { return server->duplicate_listener(); }},
      {std::string(kAdminSocket), [&] { return admin_server->duplicate_listener(); }}};
  if (outbox_server)
    offered.push_back({std::string(kOutboxSocket), [&] { return outbox_server->duplicate_listener(); }});
  HandoverOffer offer(operators.loop,
                      {server->address(), handover_name_of_store(config.store), std::move(offered),
                       [&] { shutdown.hand_over(is_embedded); }, [&] { return shared.leaving.load(); }},
                      log);
  operators.loop.run();

  if (!shutdown.clean() && offer.accepted()) {
    HandoverOffer::Granted granted = offer.take();
    // As after a kill: the exec ends what is under way and the locks of the store.
    if (granted.channel.other_is_gone()) return start_anew(granted.listeners, log);
  }
  if (!shutdown.clean()) {
    // Requests are still under way: their records say so, and a restart goes on from there.
    log.warning("stopped", {{"reason", "drain_timeout passed"}, {"connections", server->connections()}});
    log.flush();
    if (access_log) access_log->flush();
    if (audit) audit->flush();
    std::_Exit(1);
  }
  for (const auto& worker : workers) worker->stop();
  courier.stop();
  store->write_from(nullptr); // the loops go before the store
  log.info("stopped", {{"reason", "drained"}});
  if (!offer.accepted()) return 0;
  handed_over.emplace();
  handed_over->granted = offer.take();
  for (Descriptor& socket : server->take_kept())
    handed_over->connections.push_back({std::string(kGatewaySocket), std::move(socket)});
  if (outbox_server) {
    for (Descriptor& socket : outbox_server->take_kept())
      handed_over->connections.push_back({std::string(kOutboxSocket), std::move(socket)});
  }
  return 0;
}

} // namespace

int run_serve(const ServeFlags& flags, ReadConfig read) {
  std::signal(SIGPIPE, SIG_IGN);
  // Until there is something to reload, and a log to open again.
  std::signal(SIGUSR1, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);
  // Whatever is made from here on is the owner's alone, RocksDB's files too.
  ::umask(S_IRWXG | S_IRWXO);
  if (read.config.core_dumps) set_core_dumps(CoreDumps::allowed);
  Log log(enum_named<LogLevel>(read.config.log_level).value_or(LogLevel::info), log_format_of(read.config));
  std::optional<HandedOver> handed_over;
  const int code = serve(flags, std::move(read), log, handed_over);
  if (!handed_over) return code;
  return end_handover(std::move(handed_over->granted), handed_over->connections, log);
}

} // namespace oncekey
