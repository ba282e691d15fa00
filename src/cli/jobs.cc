#include "cli/jobs.h"

#include "cli/exit_codes.h"
#include "cli/keys_view.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <boost/json.hpp>

#include <ostream>

namespace oncekey {
namespace {

namespace json = boost::json;

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
  std::string state;
  std::string endpoint;
  std::uint32_t limit = 100;
  std::string id;
  std::string reason;
  bool yes = false;

  int act(const std::string& action, const AdminClient& client, const Console& console) const;
};

JobsCommand::JobsCommand(CLI::App& app) : impl_(std::make_unique<Impl>()) {
  Impl& it = *impl_;
  it.jobs = app.add_subcommand(
      "jobs", "look at the jobs of a running gateway, the messages it delivers; retry or drop them by hand");
  it.jobs->require_subcommand(1);
  it.jobs->fallthrough();
  it.admin.add_to(*it.jobs);

  it.list = it.jobs->add_subcommand("list", "list jobs");
  it.list->add_option("--state", it.state, "only those in this state")->check(CLI::IsMember(kJobStates));
  it.list->add_option("--endpoint", it.endpoint,
                      "only those of this webhook or destination, as in \"hook /hooks/stripe\" or \"to billing\"");
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
  const auto client = it.admin.client();
  if (!client) {
    console.err << "oncekey jobs: " << client.fault().message << "\n";
    return kUsage;
  }
  int exit_code = kDone;
  if (it.list->parsed()) {
    std::string query = fmt::format("/api/jobs?limit={}", it.limit);
    if (!it.state.empty()) query += "&state=" + it.state;
    if (!it.endpoint.empty()) query += "&endpoint=" + percent_encoded(it.endpoint);
    const auto answer = body_or_complain(client->get(query), "jobs", console, exit_code);
    return answer ? print_answer(*answer, it.admin.as_json, view_of_jobs, "jobs", console) : exit_code;
  }
  if (const Status whole = check_id(it.id, "jobs"); !whole) {
    console.err << "oncekey jobs: " << whole.fault().message << "\n";
    return kUsage;
  }
  if (it.show->parsed()) {
    const auto answer = body_or_complain(client->get("/api/jobs/" + it.id), "jobs", console, exit_code);
    return answer ? print_answer(*answer, it.admin.as_json, view_of_job, "jobs", console) : exit_code;
  }
  return it.act(it.jobs->get_subcommands().front()->get_name(), *client, console);
}

int JobsCommand::Impl::act(const std::string& action, const AdminClient& client, const Console& console) const {
  if (reason.find_first_not_of(" \t") == std::string::npos) {
    console.err << "oncekey jobs: --reason must not be empty\n";
    return kUsage;
  }
  int exit_code = kDone;
  std::string whole_id = id;
  if (!yes) {
    if (console.confirm == nullptr) {
      console.err << "oncekey jobs: not a terminal: add --yes to confirm " << action << "\n";
      return kUsage;
    }
    const auto confirmed =
        show_and_confirm(client, "/api/jobs/" + id, view_of_job, fmt::format("{}: {}. Go on?", action, meaning(action)),
                         "jobs", console, exit_code);
    if (!confirmed) return exit_code;
    whole_id = *confirmed;
  }
  const std::string request = json::serialize(json::object{{"reason", reason}});
  const auto answer = body_or_complain(client.post(fmt::format("/api/jobs/{}/{}", whole_id, action), request), "jobs",
                                       console, exit_code);
  if (!answer) return exit_code;
  if (admin.as_json) return print_answer(*answer, true, nullptr, "jobs", console);
  console.out << fmt::format("{}: done: {}\n", action, meaning(action));
  return kDone;
}

} // namespace oncekey
