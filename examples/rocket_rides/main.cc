// rides: the example application of Oncekey's library, all of its processes in one program. docs/TUTORIAL.md walks
// through it.
//
//   rides api          POST /rides and GET /rides/ID; with --with-workers everything of ours in one process
//   rides completer    finishes bookings that were abandoned in the middle
//   rides enqueuer     hands the staged receipts to the mailer
//   rides reaper       drops answers whose retention is over
//   rides backlog      what waits to be finished, delivered or looked at by a person
//   rides processor    the payment processor's stand-in
//   rides mailer       the receiver of the receipts
//   rides simulator    riders
//   rides demo         all of them, and a kill in the middle
#include "book_ride.h"
#include "demo.h"
#include "faults.h"
#include "flags.h"
#include "http.h"
#include "mailer.h"
#include "processor.h"
#include "processor_client.h"
#include "rides_api.h"
#include "schema.h"
#include "simulator.h"

#include <oncekey/workers.h>

#include <chrono>
#include <csignal>
#include <iostream>
#include <memory>
#include <thread>

namespace {

using rides::Flags;
using rides::from_seconds;
using rides::HttpServer;
using std::chrono::milliseconds;

template <class T>
T value_of(oncekey::Result<T> result) {
  if (!result) throw std::runtime_error(result.fault().message);
  return std::move(result).value();
}

// Our database, with all tables in it.
std::unique_ptr<oncekey::Database> open(const Flags& flags, oncekey::StatementObserver observer = {}) {
  oncekey::DatabaseOptions options;
  options.clock_ahead = from_seconds(flags.clock_ahead);
  options.on_statement = std::move(observer);
  auto database = value_of(oncekey::open_database(flags.database, std::move(options)));
  rides::prepare_database(*database);
  return database;
}

// What runs bookings, in the API and in the completer alike.
class Bookings {
 public:
  explicit Bookings(const Flags& flags, oncekey::StatementObserver observer = {})
      : database_(open(flags, std::move(observer))), processor_(flags.processor) {
    oncekey::RunnerOptions options;
    options.lease = from_seconds(flags.lease);
    const auto charge = [this](const std::string& key, const rides::ChargeOrder& order) {
      return processor_.charge(key, order);
    };
    runner_.emplace(*database_, std::vector{rides::book_ride(charge)}, options);
  }

  oncekey::Database& database() { return *database_; }
  oncekey::Runner& runner() { return *runner_; }

 private:
  std::unique_ptr<oncekey::Database> database_;
  rides::ProcessorClient processor_;
  std::optional<oncekey::Runner> runner_;
};

oncekey::CompleterOptions completer_options(const Flags& flags) {
  oncekey::CompleterOptions options;
  options.grace = from_seconds(flags.grace);
  options.backoff_first = from_seconds(flags.completer_backoff);
  options.attempts_max = flags.attempts;
  options.idle_wait = std::min(options.idle_wait, options.backoff_first);
  return options;
}

std::map<std::string, std::shared_ptr<oncekey::Sink>> sinks(const Flags& flags) {
  return {{std::string(rides::kMailSink), value_of(oncekey::http_sink(flags.mailer + "/receipts"))}};
}

oncekey::EnqueuerOptions enqueuer_options(const Flags& flags) {
  oncekey::EnqueuerOptions options;
  options.backoff_first = from_seconds(flags.enqueuer_backoff);
  options.backoff_max = from_seconds(flags.enqueuer_backoff_max);
  options.claim = from_seconds(flags.claim);
  options.batch = flags.batch;
  options.idle_wait = std::min(options.idle_wait, options.backoff_first);
  return options;
}

sigset_t ending_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

// Services wait for these instead of being interrupted by them. Before the first thread, which inherits it.
void block_ending_signals() {
  const sigset_t set = ending_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

void wait_for_ending_signal() {
  const sigset_t set = ending_signals();
  int number = 0;
  sigwait(&set, &number);
}

void serve(const std::string& name, std::uint16_t port, HttpServer::Handler handler,
           const std::function<void()>& listening = {}) {
  HttpServer server(port, std::move(handler));
  std::cout << "rides " << name << ": listening on http://127.0.0.1:" << server.port() << std::endl;
  if (listening) listening();
  std::jthread thread([&] { server.run(); });
  wait_for_ending_signal();
  server.stop();
}

// Until a signal comes or, with --until-done, until nothing is left. False if something still is when the time is over.
bool work(oncekey::BackgroundWorker& worker, const Flags& flags, const std::function<std::uint64_t()>& left) {
  std::jthread thread([&] { worker.run(); });
  bool done = flags.until_done == 0;
  if (done) {
    wait_for_ending_signal();
  } else {
    const auto end = std::chrono::steady_clock::now() + from_seconds(flags.until_done);
    while (!(done = left() == 0) && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(milliseconds(20));
    }
  }
  worker.stop();
  return done;
}

int api(const Flags& flags) {
  const bool pause = flags.pause_at > 0;
  rides::CrashPoint crash(pause ? flags.pause_at : flags.die_at,
                          pause ? rides::CrashPoint::Then::pause : rides::CrashPoint::Then::die);
  Bookings bookings(flags, crash.observer());
  const rides::RidesApi rides_api(bookings.runner());

  oncekey::Completer completer(bookings.runner(), completer_options(flags));
  oncekey::Enqueuer enqueuer(bookings.database(), sinks(flags), enqueuer_options(flags));
  oncekey::Reaper reaper(bookings.database());
  const std::vector<oncekey::BackgroundWorker*> workers = {&completer, &enqueuer, &reaper};
  std::vector<std::jthread> threads;
  for (auto* const worker : workers) {
    if (flags.with_workers) threads.emplace_back([worker] { worker->run(); });
  }
  serve(
      "api", flags.port, [&](const rides::HttpRequest& request) { return rides_api.answer(request); },
      [&] { crash.arm(); });
  for (auto* const worker : workers) worker->stop();
  return 0;
}

int completer(const Flags& flags) {
  Bookings bookings(flags);
  oncekey::Completer worker(bookings.runner(), completer_options(flags));
  const bool done =
      work(worker, flags, [&] { return value_of(count_backlog(bookings.database())).unfinished_operations; });
  const auto counts = worker.metrics();
  std::cout << "rides completer: finished " << counts.finished << ", failed " << counts.failed << ", dead letters "
            << counts.dead << std::endl;
  return done ? 0 : 1;
}

int enqueuer(const Flags& flags) {
  const auto database = open(flags);
  oncekey::Enqueuer worker(*database, sinks(flags), enqueuer_options(flags));
  const bool done = work(worker, flags, [&] { return value_of(count_backlog(*database)).staged_jobs; });
  const auto counts = worker.metrics();
  std::cout << "rides enqueuer: delivered " << counts.delivered << ", refused " << counts.refused << ", dead letters "
            << counts.dead << std::endl;
  return done ? 0 : 1;
}

int reaper(const Flags& flags) {
  const auto database = open(flags);
  oncekey::Reaper worker(*database);
  if (!flags.once) return work(worker, flags, {}) ? 0 : 1;
  const auto counts = value_of(worker.run_once());
  std::cout << "rides reaper: dropped " << counts.answer_buckets << " buckets of answers" << std::endl;
  return 0;
}

int backlog(const Flags& flags) {
  const auto database = open(flags);
  const auto counts = value_of(count_backlog(*database));
  std::cout << "unfinished bookings " << counts.unfinished_operations << ", staged receipts " << counts.staged_jobs
            << ", dead letters " << counts.dead_operations + counts.dead_jobs << std::endl;
  for (const auto& dead : value_of(oncekey::list_dead_operations(*database))) {
    std::cout << "dead: key " << dead.operation.key << " of " << dead.operation.principal << " at "
              << dead.operation.recovery_point << ": " << dead.why << std::endl;
    if (!flags.restart_dead) continue;
    value_of(oncekey::restart_dead_operation(*database, dead.operation.id, oncekey::ForeignSide::looked_at));
  }
  return 0;
}

int processor(const Flags& flags) {
  rides::Processor processor({.latency = from_seconds(flags.latency),
                              .errors_percent = flags.errors,
                              .drops_percent = flags.drops,
                              .key_memory = from_seconds(flags.key_memory),
                              .seed = flags.seed});
  serve("processor", flags.port, [&](const rides::HttpRequest& request) { return processor.answer(request); });
  return 0;
}

int mailer(const Flags& flags) {
  const auto database = value_of(oncekey::open_database(flags.mailer_database));
  rides::Mailer mailer(*database, flags.drops, flags.seed);
  serve("mailer", flags.port, [&](const rides::HttpRequest& request) { return mailer.answer(request); });
  return 0;
}

int simulator(const Flags& flags) {
  rides::SimulatorOptions options = flags.riders;
  options.patience = from_seconds(flags.patience);
  options.seed = flags.seed;
  const auto report = rides::Simulator(options).book();
  std::cout << "rides simulator: booked " << report.booked << ", declined " << report.declined << ", refused "
            << report.refused << ", without an answer " << report.left << "; retries " << report.retries
            << ", differing answers " << report.differing << std::endl;
  return report.refused + report.left + report.differing == 0 ? 0 : 1;
}

int run(const Flags& flags) {
  if (flags.command == "demo") return rides::run_demo(flags.demo_database);
  if (flags.command == "simulator") return simulator(flags);
  if (flags.command == "backlog") return backlog(flags);
  block_ending_signals();
  if (flags.command == "api") return api(flags);
  if (flags.command == "completer") return completer(flags);
  if (flags.command == "enqueuer") return enqueuer(flags);
  if (flags.command == "reaper") return reaper(flags);
  if (flags.command == "processor") return processor(flags);
  return mailer(flags);
}

} // namespace

int main(int argc, char** argv) {
  const Flags flags = rides::parse_flags(argc, argv);
  try {
    return run(flags);
  } catch (const std::exception& error) {
    std::cerr << "rides " << flags.command << ": " << error.what() << std::endl;
    return 1;
  }
}
