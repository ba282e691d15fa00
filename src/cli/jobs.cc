#include "cli/jobs.h"

#include "cli/exit_codes.h"
#include "cli/jobs_desk.h"
#include "cli/keys_view.h"
#include "cli/work.h"
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

} // namespace

struct JobsCommand::Impl {
  CLI::App* jobs = nullptr;
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

  int act(const std::string& action, JobsDesk& desk, const Console& console) const;
};

JobsCommand::JobsCommand(CLI::App& app) : impl_(std::make_unique<Impl>()) {
  Impl& it = *impl_;
  it.jobs = app.add_subcommand(
      "jobs", "look at the jobs of a running gateway, the messages it delivers; retry or drop them by hand");
  it.jobs->require_subcommand(1);
  it.jobs->fallthrough();
  it.admin.add_to(*it.jobs);
  it.jobs
      ->add_option(
          "--store", it.store,
          "the jobs in this database of the library instead, as for `oncekey work`; env:VARIABLE and file:PATH keep "
          "a password out of the command line")
      ->type_name("URL");

  it.list = it.jobs->add_subcommand("list", "list jobs");
  it.list->add_option("--state", it.state, "only those in this state")->check(CLI::IsMember(kJobStates));
  it.list->add_option(
      "--endpoint", it.endpoint,
      "only those of this webhook, destination or sink, as in \"hook /hooks/stripe\" or \"to billing\"");
  it.list->add_option("--limit", it.limit, "at most this many")->capture_default_str()->check(CLI::Range(1, 10'000));
  it.show = it.jobs->add_subcommand("show", "show one job: its message, and how its last attempt went");
  it.show->add_option("ID", it.id, "the job's id, or at least 8 digits of its beginning")->required();
  const auto add_action = [&](const std::string& name, const std::string& description) {
    CLI::App* action = it.jobs->add_subcommand(name, description);
    action->add_option("ID", it.id, "the job's id, or at least 8 digits of its beginning")->required();
    action->add_option("--reason", it.reason, "why; goes into the audit line")->required();
    action->add_flag("--yes", it.yes, "do not ask");
  };
  add_action("retry", "deliver it now: a dead letter, one that pauses, or one that was delivered already");
  add_action("drop", "do not deliver it any more");
}

JobsCommand::~JobsCommand() = default;

bool JobsCommand::chosen() const { return impl_->jobs->parsed(); }
int JobsCommand::run() const { return run(standard_console()); }

int JobsCommand::run(const Console& console) const {
  const Impl& it = *impl_;
  const auto wrong = [&](const Fault& fault, int exit_code) {
    console.err << "oncekey jobs: " << fault.message << "\n";
    return exit_code;
  };
  if (it.store.empty() && !it.list->parsed()) {
    if (const Status whole = check_id(it.id, "jobs"); !whole) return wrong(whole.fault(), kUsage);
  }
  const std::string action = it.jobs->get_subcommands().front()->get_name();
  const bool acts = !it.list->parsed() && !it.show->parsed();
  if (acts && it.reason.find_first_not_of(" \t") == std::string::npos)
    return wrong(invalid("--reason must not be empty"), kUsage);
  if (acts && !it.yes && console.confirm == nullptr)
    return wrong(invalid(fmt::format("not a terminal: add --yes to confirm {}", action)), kUsage);
  std::unique_ptr<JobsDesk> desk;
  if (it.store.empty()) {
    auto client = it.admin.client();
    if (!client) return wrong(client.fault(), kUsage);
    desk = jobs_of_gateway(*std::move(client));
  } else {
    const auto url = resolve_secret(it.store);
    if (!url) return wrong(url.fault(), kUsage);
    auto database = open_library_database(*url);
    if (!database) return wrong(database.fault(), kRefused);
    desk = jobs_of_database(*std::move(database));
  }
  int exit_code = kDone;
  if (!acts) {
    auto shown = it.list->parsed() ? desk->list(it.state, it.endpoint, it.limit) : desk->show(it.id);
    const auto answer = body_or_complain(std::move(shown), "jobs", console, exit_code);
    const auto view = it.list->parsed() ? view_of_jobs : view_of_job;
    return answer ? print_answer(*answer, it.admin.as_json, view, "jobs", console) : exit_code;
  }
  return it.act(action, *desk, console);
}

int JobsCommand::Impl::act(const std::string& action, JobsDesk& desk, const Console& console) const {
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

} // namespace oncekey
