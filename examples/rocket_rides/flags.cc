#include "flags.h"

#include <CLI/CLI.hpp>

#include <cstdlib>

namespace rides {
namespace {

constexpr std::uint16_t kApiPort = 5004;
constexpr std::uint16_t kProcessorPort = 5005;
constexpr std::uint16_t kMailerPort = 5006;

void add_port(CLI::App& command, Flags& flags, std::uint16_t port) {
  command.add_option("--port", flags.port, "on 127.0.0.1; 0 picks a free one (default " + std::to_string(port) + ")");
  // The default differs from command to command.
  command.preparse_callback([&flags, port](std::size_t) { flags.port = port; });
}

void add_database(CLI::App& command, std::string& database) {
  command.add_option("--database", database, "sqlite:PATH or postgres://...")->capture_default_str();
}

void add_ours(CLI::App& command, Flags& flags) {
  add_database(command, flags.database);
  command.add_option("--clock-ahead", flags.clock_ahead, "pretend that it is so many seconds later");
}

void add_runner(CLI::App& command, Flags& flags) {
  command.add_option("--processor", flags.processor, "the payment processor")->capture_default_str();
  command.add_option("--lease", flags.lease, "seconds after which a silent owner is taken for dead")
      ->capture_default_str();
}

void add_completer(CLI::App& command, Flags& flags, const std::string& backoff) {
  command.add_option("--grace", flags.grace, "seconds that a booking is left to its client")->capture_default_str();
  command.add_option(backoff, flags.completer_backoff, "seconds to wait after the first failed attempt")
      ->capture_default_str();
  command.add_option("--attempts", flags.attempts, "failed attempts that make a dead letter")->capture_default_str();
}

void add_enqueuer(CLI::App& command, Flags& flags, const std::string& backoff) {
  command.add_option("--mailer", flags.mailer, "the receiver of the receipts")->capture_default_str();
  command.add_option(backoff, flags.enqueuer_backoff, "seconds to wait after the first failed delivery")
      ->capture_default_str();
  command.add_option(backoff + "-max", flags.enqueuer_backoff_max, "seconds, the longest such wait")
      ->capture_default_str();
  command.add_option("--claim", flags.claim, "seconds that a batch is this enqueuer's")->capture_default_str();
  command.add_option("--batch", flags.batch, "jobs at a time")->capture_default_str();
}

void add_until_done(CLI::App& command, Flags& flags) {
  command.add_option("--until-done", flags.until_done,
                     "end when nothing is left to do, or with an error after so many seconds");
}

void add_drops(CLI::App& command, Flags& flags) {
  command.add_option("--drops", flags.drops, "percent of the requests whose connection is lost");
  command.add_option("--seed", flags.seed, "of the dice");
}

void add_our_commands(CLI::App& app, Flags& flags) {
  CLI::App& api = *app.add_subcommand("api", "the HTTP API");
  add_ours(api, flags);
  add_runner(api, flags);
  add_port(api, flags, kApiPort);
  add_completer(api, flags, "--completer-backoff");
  add_enqueuer(api, flags, "--enqueuer-backoff");
  api.add_flag("--with-workers", flags.with_workers, "completer, enqueuer and reaper in this process");
  api.add_option("--die-at", flags.die_at, "for crash tests: SIGKILL at the Nth moment before or after a statement");
  api.add_option("--pause-at", flags.pause_at, "for crash tests: SIGSTOP at such a moment");

  CLI::App& completer = *app.add_subcommand("completer", "finishes abandoned bookings");
  add_ours(completer, flags);
  add_runner(completer, flags);
  add_completer(completer, flags, "--backoff");
  add_until_done(completer, flags);

  CLI::App& enqueuer = *app.add_subcommand("enqueuer", "delivers staged receipts");
  add_ours(enqueuer, flags);
  add_enqueuer(enqueuer, flags, "--backoff");
  add_until_done(enqueuer, flags);

  CLI::App& reaper = *app.add_subcommand("reaper", "drops answers whose retention is over");
  add_ours(reaper, flags);
  reaper.add_flag("--once", flags.once, "once, instead of again and again");

  CLI::App& backlog = *app.add_subcommand("backlog", "what waits to be finished, delivered or looked at by a person");
  add_ours(backlog, flags);
  backlog.add_flag("--restart-dead", flags.restart_dead,
                   "let dead bookings be tried again: I have looked, the processor did not charge for them");
}

void add_other_peoples_commands(CLI::App& app, Flags& flags) {
  CLI::App& processor = *app.add_subcommand("processor", "the payment processor's stand-in");
  add_port(processor, flags, kProcessorPort);
  add_drops(processor, flags);
  processor.add_option("--latency", flags.latency, "seconds that a charge takes");
  processor.add_option("--errors", flags.errors, "percent of the requests that end in a 500");
  processor.add_option("--key-memory", flags.key_memory, "seconds that a key is remembered")->capture_default_str();

  CLI::App& mailer = *app.add_subcommand("mailer", "the receiver of the receipts");
  add_port(mailer, flags, kMailerPort);
  add_drops(mailer, flags);
  add_database(mailer, flags.mailer_database);

  CLI::App& simulator = *app.add_subcommand("simulator", "riders");
  simulator.add_option("--api", flags.riders.api, "where they book")->capture_default_str();
  simulator.add_option("--clients", flags.riders.clients, "how many book at a time")->capture_default_str();
  simulator.add_option("--rides", flags.riders.rides, "how many bookings in all")->capture_default_str();
  simulator.add_option("--patience", flags.patience, "seconds to go on trying")->capture_default_str();
  simulator.add_option("--seed", flags.seed, "another seed, other bookings");
  simulator.add_option("--log", flags.riders.log, "a file for the answers, one JSON object a line");
}

} // namespace

Flags parse_flags(int argc, char** argv) {
  Flags flags;
  CLI::App app("Rocket Rides: books rides and charges for them, once.", "rides");
  app.require_subcommand(1);
  add_our_commands(app, flags);
  add_other_peoples_commands(app, flags);
  CLI::App& demo = *app.add_subcommand("demo", "all of it, and a kill in the middle");
  demo.add_option("--database", flags.demo_database, "instead of a temporary SQLite file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  flags.command = app.get_subcommands().front()->get_name();
  return flags;
}

} // namespace rides
