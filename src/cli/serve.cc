#include "admin/admin.h"
#include "admin/audit_lines.h"
#include "base/enum_name.h"
#include "base/masked_url.h"
#include "base/private_files.h"
#include "cli/admin_token.h"
#include "cli/audit_setup.h"
#include "cli/descriptors.h"
#include "cli/handover.h"
#include "cli/reload.h"
#include "cli/room_watch.h"
#include "cli/server_options.h"
#include "cli/service_manager.h"
#include "cli/shutdown.h"
#include "cli/store_watch.h"
#include "cli/subcommand.h"
#include "cli/succession.h"
#include "cli/worker.h"
#include "config/sealing_key_file.h"
#include "delivery/outbox.h"

#include <sys/stat.h>

#include <csignal>

namespace oncekey {
namespace {

// What a store that can no longer keep its promise ends the process with; EX_IOERR of sysexits.h.
constexpr int kExitStoreFailed = 74;

// Another gateway asks for the sockets of this one: what is left to do once the store is closed.
struct HandedOver {
  HandoverOffer::Granted granted;
  std::vector<IdleConnection> connections;
};

LogFormat log_format_of(const Config& config) {
  return config.log_format == "json" ? LogFormat::json : LogFormat::text;
}

// Null where the store is not encrypted.
Result<std::unique_ptr<Sealer>> load_sealer(const Config& config, Log& log) {
  if (config.encryption_key_file.empty()) return std::unique_ptr<Sealer>();
  Result<std::unique_ptr<const SealingKeys>> keys = load_sealing_keys(config.encryption_key_file);
  if (!keys) return std::move(keys).fault();
  log.info("encryption", {{"seals_with_key", (*keys)->sealing_id()}, {"opens_with_keys", (*keys)->ids()}});
  return std::make_unique<Sealer>(std::move(keys).value());
}

void seal_secret(const std::string& store, Sealer& sealer, Log& log) {
  sealer.let_reseal();
  if (const Status sealed = reseal_secret(store, sealer, log); !sealed)
    log.warning("secret_not_sealed", {{"store", masked_url(store)}, {"reason", sealed.fault().message}});
}

StoreOptions store_options(const Config& config, const Sealer* sealer, Log& log) {
  const auto end_process = [&log](const std::string& reason) {
    // Whether earlier writes are on disk is unknown now: no answer may leave any more.
    log.error("store_failed",
              {{"reason", reason},
               {"next", "the process ends without acknowledging anything; check the disk, then start again"}});
    log.flush();
    std::_Exit(kExitStoreFailed);
  };
  const auto least = enum_named<Durability>(config.require_durability.value_or("none"));
  return {log, end_process, least.value_or(Durability::process), sealer, config.trust_clock};
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
  if (!took(load_sealer(config, log), sealer)) return 1;
  Result<Succession> begun = Succession::begin(flags, config, sealer.get(), log);
  if (!begun) return refuse(begun.fault());
  Succession& succession = *begun;
  std::unique_ptr<Store> store;
  if (!took(succession.open(config.store, store_options(config, sealer.get(), log)), store)) return 1;
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
  const WorkerParts parts{shared, delivery_metrics, couriers.get(), spans.get(), access_log.get(), log_format};
  for (std::size_t i = 0; i < threads; ++i) {
    if (!took(make_gateway_worker(parts), workers.emplace_back())) return 1;
    lanes.push_back({workers.back()->loop, *workers.back()->handler});
  }
  const auto listen = [&](std::string_view name, const Address& address, ServerOptions options, std::vector<Lane> on) {
    return Server::listen(address.host, address.port, std::move(options), std::move(on), log,
                          succession.socket_for(name, address));
  };
  std::unique_ptr<Server> server;
  if (!took(listen(kGatewaySocket, config.listen, options_for_clients(config, shared.shares_owner), std::move(lanes)),
            server))
    return 1;

  shared.metrics.begin(ONCEKEY_VERSION);
  // Operators get a thread of their own: a long listing must not delay a payment, nor the other way round.
  Worker operators;
  const RoomWatch room_watch(shared, operators.loop);
  StoreCounts store_counts;
  StoreWatch store_watch(shared, delivery_metrics, store_counts, operators.loop);
  Admin admin(shared, store_counts, operators.loop, ONCEKEY_VERSION);
  std::unique_ptr<Server> admin_server;
  if (!took(listen(kAdminSocket, config.admin, options_for_operators(config), {{operators.loop, admin}}), admin_server))
    return 1;
  admin.serves(*server);

  std::unique_ptr<Handler> outbox;
  std::unique_ptr<Server> outbox_server;
  if (config.outbox) {
    outbox = make_outbox(shared, delivery_metrics, *couriers, courier.loop);
    if (!took(listen(kOutboxSocket, *config.outbox, options_for_outbox(config), {{courier.loop, *outbox}}),
              outbox_server))
      return 1;
  }

  succession.close_unused(log);

  std::unique_ptr<TrustKeeper> keeper;
  if (!shared.trust.empty() && !took(TrustKeeper::make(shared, operators.loop), keeper)) return 1;
  // After the keeper has noted what the files look like: a change from here on is read again.
  if (const Status loaded = shared.trust.load_files(); !loaded) return refuse(loaded.fault());

  if (!took(open_audit_log(config, shared.name, log), audit)) return 1;
  // A start that has failed before this changes nothing: the gateway of before starts again as it did.
  if (!took(identity_basis_of(config), basis)) return 1;
  if (const Status known = remember_identity(config.store, basis, change, log); !known) return refuse(known.fault());
  // Nothing refuses the start from here on, and nothing was sealed yet. A crash before this leaves a store that opens
  // with the key and without it; a crash behind it one that asks for the key, as every later one does.
  if (sealer) seal_secret(config.store, *sealer, log);

  shared.audit = audit.get();
  if (audit) admin.reads_audit_log();
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
  // Before the log says that this gateway listens: a process that takes over may be started then. The name is taken
  // later if the gateway of before has it still.
  std::vector<HandoverOffer::Listening> offered{
      {std::string(kGatewaySocket), [&] { return server->duplicate_listener(); }},
      {std::string(kAdminSocket), [&] { return admin_server->duplicate_listener(); }}};
  if (outbox_server)
    offered.push_back({std::string(kOutboxSocket), [&] { return outbox_server->duplicate_listener(); }});
  HandoverOffer offer(
      operators.loop,
      {server->address(), handover_name_of_store(config.store), std::move(offered),
       [&] { shutdown.hand_over(folder_of_store(config.store).has_value()); }, [&] { return shared.leaving.load(); }},
      log);
  log.info("listening", {{"address", server->address()},
                         {"admin", admin_server->address()},
                         {"outbox", outbox_server ? outbox_server->address() : "off"},
                         {"store", masked_url(config.store)},
                         {"durability", to_string(store->durability())},
                         {"threads", threads}});
  manager.ready(serving);
  succession.serves(operators.loop, [&](IdleConnection connection) {
    if (connection.listener == kGatewaySocket) server->adopt(std::move(connection.socket));
    if (connection.listener == kOutboxSocket && outbox_server) outbox_server->adopt(std::move(connection.socket));
  });
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
