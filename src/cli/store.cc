#include "cli/store.h"

#include "base/log.h"
#include "base/masked_url.h"
#include "cli/exit_codes.h"
#include "config/secret.h"
#include "store/open_store.h"

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <iostream>
#include <optional>

namespace oncekey {
namespace {

bool sure(const std::string& url) {
  std::cerr << fmt::format(
                   "Records that {} has forgotten will be executed again when their clients retry. Go on? [y/N] ",
                   masked_url(url))
            << std::flush;
  std::string answer;
  return std::getline(std::cin, answer) && (answer == "y" || answer == "Y" || answer == "yes");
}

// What went wrong, if anything did.
std::optional<Fault> migrate(const std::string& url, Log& log) {
  const Status done = migrate_store(url, log);
  if (!done) return done.fault();
  std::cout << "the schema is up to date\n";
  return std::nullopt;
}

std::optional<Fault> accept_loss(const std::string& url, Log& log) {
  const Result<LossAccepted> done = accept_lost_memory(url, log);
  if (!done) return done.fault();
  std::cout << (*done == LossAccepted::now ? "accepted: gateways accept claims again\n"
                                           : "accepted: the gateway accepts claims again at its next start\n");
  return std::nullopt;
}

} // namespace

StoreCommand::StoreCommand(CLI::App& app)
    : store_(app.add_subcommand("store", "Migrate a store, or accept that it has lost records")),
      migrate_(store_->add_subcommand("migrate", "Bring a Postgres store's schema up to this version, as serve does")),
      accept_loss_(store_->add_subcommand(
          "accept-loss", "Confirm that the records a store has lost are accounted for: gateways accept claims again")) {
  store_->require_subcommand(1);
  for (CLI::App* const command : {migrate_, accept_loss_}) {
    command
        ->add_option("--store", url_,
                     "rocksdb:PATH, postgres://, redis:// or redis+cluster://, or env:NAME or file:PATH")
        ->type_name("URL")
        ->required();
  }
  accept_loss_->add_flag("--yes", yes_, "do not ask");
}

bool StoreCommand::chosen() const { return store_->parsed(); }

int StoreCommand::run() const {
  const Result<std::string> url = resolve_secret(url_);
  if (!url) {
    std::cerr << "oncekey store: " << url.fault().message << "\n";
    return kUsage;
  }
  if (accept_loss_->parsed() && !yes_) {
    if (::isatty(STDIN_FILENO) == 0) {
      std::cerr << "oncekey store: there is no terminal to ask on; give --yes if you are sure\n";
      return kUsage;
    }
    if (!sure(*url)) return kRefused;
  }
  Log log(LogLevel::info);
  const std::optional<Fault> fault = migrate_->parsed() ? migrate(*url, log) : accept_loss(*url, log);
  log.flush();
  if (!fault) return kDone;
  std::cerr << "oncekey store: " << fault->message << "\n";
  return fault->kind == FaultKind::invalid ? kUsage : kRefused;
}

} // namespace oncekey
