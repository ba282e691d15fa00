#include "cli/admin_talk.h"
#include "cli/exit_codes.h"
#include "cli/jobs_desk.h"
#include "cli/keys_view.h"
#include "cli/library_database.h"
#include "cli/subcommand.h"
#include "config/secret.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <ostream>

namespace oncekey {
namespace {

const std::vector<std::string> kJobStates{"waiting", "taken", "delivered", "dropped", "dead"};

std::string_view meaning(std::string_view action) {
  if (action == "retry") return "it is delivered again as soon as a place is free, with the same Idempotency-Key";
  return "it is never delivered, and its message is forgotten; a repetition of it is still known for one";
}

class JobsCommand final : public Subcommand {
 public:
  explicit JobsCommand(CLI::App& app);
  int run(const Console& console) const override;

 private:
  int act(const std::string& action, JobsDesk& desk, const Console& console) const;

  CLI::App* list = nullptr;
  CLI::App* show = nullptr;
  AdminFlags admin;
  std::string store;
  std::string state;
  std::string endpoint;
  std::uint32_t limit = 100;
  std::string id;
  std::string reason;
  bool yes = false;
};

JobsCommand::JobsCommand(CLI::App& app)
    : Subcommand(app.add_subcommand(
          "jobs", "Inspect the jobs of a running gateway or of the library's database; retry or drop them")) {
  command_->require_subcommand(1);
  command_->fallthrough();
  admin.add_to(*command_);
  command_
      ->add_option(
          "--store", store,
          "the jobs in this database of the library instead, as for `oncekey work`; env:VARIABLE and file:PATH keep "
          "a password out of the command line")
      ->type_name("URL");

  list = command_->add_subcommand("list", "list jobs");
  list->add_option("--state", state, "only those in this state")->check(CLI::IsMember(kJobStates));
  list->add_option("--destination", endpoint,
                   "only those of this webhook, destination or sink, as in \"hook /hooks/stripe\" or \"to billing\"");
  list->add_option("--limit", limit, "at most this many")->capture_default_str()->check(CLI::Range(1, 10'000));
  show = command_->add_subcommand("show", "show one job: its message, and how its last attempt went");
  show->add_option("ID", id, "the job's id, or at least 8 digits of its beginning")->required();
  const auto add_action = [&](const std::string& name, const std::string& description) {
    CLI::App* action = command_->add_subcommand(name, description);
    action->add_option("ID", id, "the job's id, or at least 8 digits of its beginning")->required();
    action->add_option("--reason", reason, "why; goes into the audit line")->required();
    action->add_flag("--yes", yes, "do not ask");
  };
  add_action("retry", "deliver it now: a dead letter, one that pauses, or one that was delivered already");
  add_action("drop", "do not deliver it any more");
}

int JobsCommand::run(const Console& console) const {
  const auto wrong = [&](const Fault& fault, int exit_code) {
    console.err << "oncekey jobs: " << fault.message << "\n";
    return exit_code;
  };
  if (store.empty() && !list->parsed()) {
    if (const Status whole = check_id(id, "jobs"); !whole) return wrong(whole.fault(), kUsage);
  }
  const std::string action = command_->get_subcommands().front()->get_name();
  const bool acts = !list->parsed() && !show->parsed();
  if (acts && reason.find_first_not_of(" \t") == std::string::npos)
    return wrong(invalid("--reason must not be empty"), kUsage);
  if (acts && !yes && console.confirm == nullptr)
    return wrong(invalid(fmt::format("not a terminal: add --yes to confirm {}", action)), kUsage);
  std::unique_ptr<JobsDesk> desk;
  if (store.empty()) {
    auto client = admin.client();
    if (!client) return wrong(client.fault(), kUsage);
    desk = jobs_of_gateway(*std::move(client));
  } else {
    const auto url = resolve_secret(store);
    if (!url) return wrong(url.fault(), kUsage);
    auto database = open_library_database(*url);
    if (!database) return wrong(database.fault(), kRefused);
    desk = jobs_of_database(*std::move(database));
  }
  int exit_code = kDone;
  if (!acts) {
    auto shown = list->parsed() ? desk->list(state, endpoint, limit) : desk->show(id);
    const auto answer = body_or_complain(std::move(shown), "jobs", console, exit_code);
    const auto view = list->parsed() ? view_of_jobs : view_of_job;
    return answer ? print_answer(*answer, admin.as_json, view, "jobs", console) : exit_code;
  }
  return act(action, *desk, console);
}

int JobsCommand::act(const std::string& action, JobsDesk& desk, const Console& console) const {
  int exit_code = kDone;
  std::string whole_id = id;
  if (!yes) {
    const auto confirmed = show_and_confirm(
        desk.show(id), view_of_job, fmt::format("{}: {}. Go on?", action, meaning(action)), "jobs", console, exit_code);
    if (!confirmed) return exit_code;
    whole_id = *confirmed;
  }
  const auto answer = body_or_complain(desk.act(whole_id, action, reason), "jobs", console, exit_code);
  if (!answer) return exit_code;
  if (admin.as_json) return print_answer(*answer, true, nullptr, "jobs", console);
  console.out << fmt::format("{}: done: {}\n", action, meaning(action));
  return kDone;
}

} // namespace

std::unique_ptr<Subcommand> jobs_command(CLI::App& app) { return std::make_unique<JobsCommand>(app); }

} // namespace oncekey
