#include "cli/subcommand.h"

#include "base/log.h"
#include "base/masked_url.h"
#include "config/secret.h"
#include "store/open_store.h"

namespace oncekey {
namespace {

class StoreCommand final : public Subcommand {
 public:
  explicit StoreCommand(CLI::App& app)
      : Subcommand(app, "store", "Migrate a store, or accept that it has lost records"),
        migrate_(
            command_->add_subcommand("migrate", "Bring a Postgres store's schema up to this version, as serve does")),
        accept_loss_(command_->add_subcommand(
            "accept-loss",
            "Confirm that the records a store has lost are accounted for: gateways accept claims again")) {
    command_->require_subcommand(1);
    for (CLI::App* const command : {migrate_, accept_loss_}) {
      command
          ->add_option("--store", url_,
                       "journal:PATH, postgres://, redis:// or redis+cluster://, or env:NAME or file:PATH")
          ->type_name("URL")
          ->required();
    }
    accept_loss_->add_flag("--yes", yes_, "do not ask");
  }

  int run(const Console& console) const override {
    const Result<std::string> url = resolve_secret(url_);
    if (!url) return complain(console, url.fault().message);
    if (accept_loss_->parsed() && !yes_) {
      if (console.confirm == nullptr)
        return complain(console, "there is no terminal to ask on; give --yes if you are sure");
      const std::string question = fmt::format(
          "Records that {} has forgotten will be executed again when their clients retry. Go on?", masked_url(*url));
      if (!console.confirm(question)) return kRefused;
    }
    Log log(LogLevel::info);
    const Result<std::string_view> done = migrate_->parsed() ? migrate(*url, log) : accept_loss(*url, log);
    log.flush();
    if (!done) return complain(console, done.fault());
    console.out << *done;
    return kDone;
  }

 private:
  // What was done, for people.
  static Result<std::string_view> migrate(const std::string& url, Log& log) {
    if (const Status done = migrate_store(url, log); !done) return done.fault();
    return std::string_view("the schema is up to date\n");
  }

  static Result<std::string_view> accept_loss(const std::string& url, Log& log) {
    const Result<LossAccepted> done = accept_lost_memory(url, log);
    if (!done) return done.fault();
    return std::string_view(*done == LossAccepted::now
                                ? "accepted: gateways accept claims again\n"
                                : "accepted: the gateway accepts claims again at its next start\n");
  }

  CLI::App* migrate_;
  CLI::App* accept_loss_;
  std::string url_;
  bool yes_ = false;
};

} // namespace

std::unique_ptr<Subcommand> store_command(CLI::App& app) { return std::make_unique<StoreCommand>(app); }

} // namespace oncekey
