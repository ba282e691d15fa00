#include "admin/action_texts.h"
#include "admin/record_json.h"
#include "base/enum_name.h"
#include "base/log.h"
#include "cli/admin_talk.h"
#include "cli/views.h"
#include "config/secret.h"

#include <oncekey/workers.h>

#include <charconv>
#include <thread>

namespace oncekey {
namespace {

namespace json = boost::json;

const std::vector<std::string> kJobStates{"waiting", "taken", "delivered", "dropped", "dead"};

// How often the progress of a run over many jobs is looked at.
constexpr std::chrono::milliseconds kProgressEvery{500};

// Where the command asks and acts. Answers are those of the admin API, whatever keeps the jobs.
class JobsDesk {
 public:
  virtual ~JobsDesk() = default;
  // Empty texts ask for all.
  virtual Result<AdminAnswer> list(const std::string& state, const std::string& endpoint, std::uint32_t limit) = 0;
  virtual Result<AdminAnswer> show(const std::string& id) = 0;
  // retry or drop.
  virtual Result<AdminAnswer> act(const std::string& id, const std::string& action, const std::string& reason) = 0;
};

// The jobs of a running gateway, through its admin listener.
class GatewayJobs final : public JobsDesk {
 public:
  explicit GatewayJobs(AdminClient client) : client_(std::move(client)) {}

  Result<AdminAnswer> list(const std::string& state, const std::string& endpoint, std::uint32_t limit) override {
    std::string query = fmt::format("/api/jobs?limit={}", limit);
    if (!state.empty()) query += "&state=" + state;
    if (!endpoint.empty()) query += "&destination=" + percent_encoded(endpoint);
    return client_.get(query);
  }
  Result<AdminAnswer> show(const std::string& id) override {
    return client_.get(fmt::format("/api/jobs/{}?body=1", id));
  }
  Result<AdminAnswer> act(const std::string& id, const std::string& action, const std::string& reason) override {
    return client_.post(fmt::format("/api/jobs/{}/{}", id, action), json::serialize(json::object{{"reason", reason}}));
  }

 private:
  AdminClient client_;
};

AdminAnswer answer_of(int status, const json::object& body) { return {status, json::serialize(body)}; }
AdminAnswer refusal(int status, std::string_view why) { return answer_of(status, {{"error", json::value(why)}}); }

json::object table_job_json(const TableJob& job) {
  json::object out;
  const auto time_or_null = [](bool there, Time time) { return there ? json::value(iso_time(time)) : json::value(); };
  out["id"] = std::to_string(job.job.id);
  out["state"] = json::value(to_string(job.state));
  out["destination"] = job.job.sink;
  out["key"] = job.job.name;
  out["attempts"] = job.job.attempts;
  out["last"] = job.last_error.empty() ? json::value() : json::value(job.last_error);
  out["why_dead"] = job.state == TableJobState::dead ? out["last"] : json::value();
  out["received"] = iso_time(job.job.staged_at);
  out["next_attempt"] = time_or_null(job.state == TableJobState::waiting, job.next_attempt);
  out["ended"] = time_or_null(job.state == TableJobState::dead, job.dead_since);
  return out;
}

// The jobs in the database of the library (oncekey_job). An endpoint is a sink, and an id a number.
class DatabaseJobs final : public JobsDesk {
 public:
  explicit DatabaseJobs(std::unique_ptr<Database> database) : database_(std::move(database)) {}

  Result<AdminAnswer> list(const std::string& state, const std::string& endpoint, std::uint32_t limit) override {
    TableJobQuery query;
    query.sink = endpoint;
    query.limit = limit + 1;
    query.state = enum_named<TableJobState>(state);
    if (!state.empty() && !query.state) return refusal(400, "delivered and dropped jobs of a database are deleted");
    const auto jobs = list_jobs(*database_, query);
    if (!jobs) return jobs.fault();
    json::array lines;
    for (const TableJob& job : *jobs) {
      if (lines.size() < limit) lines.push_back(table_job_json(job));
    }
    return answer_of(200, {{"jobs", std::move(lines)}, {"more", jobs->size() > limit}});
  }
  Result<AdminAnswer> show(const std::string& id) override {
    const auto job = find(id);
    if (!job) return job.fault();
    if (!*job) return refusal(404, kNone);
    json::object body = table_job_json(**job);
    body["message"] = message_json({(*job)->job.name, {}, {}, (*job)->job.args}, Bodies::shown);
    return answer_of(200, body);
  }
  Result<AdminAnswer> act(const std::string& id, const std::string& action, const std::string& reason) override {
    const auto job = find(id);
    if (!job) return job.fault();
    if (!*job) return refusal(404, kNone);
    const JobId number = (*job)->job.id;
    const auto done = action == "retry" ? retry_job(*database_, number) : drop_job(*database_, number);
    if (!done) return done.fault();
    Log(LogLevel::info)
        .always("operator_action",
                {{"action", action}, {"id", id}, {"result", *done ? "done" : "refused"}, {"reason", reason}});
    if (!*done) return refusal(409, "an enqueuer delivers it at this moment: try again when the attempt has ended");
    return answer_of(200, {{"id", id}, {"action", action}, {"result", "done"}});
  }

 private:
  static constexpr std::string_view kNone = "no such job; it may have been delivered";

  Result<std::optional<TableJob>> find(const std::string& id) {
    TableJobQuery query;
    query.id.emplace();
    const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), *query.id);
    if (error != std::errc{} || end != id.data() + id.size() || *query.id <= 0) return std::optional<TableJob>();
    auto jobs = list_jobs(*database_, query);
    if (!jobs) return std::move(jobs).fault();
    return jobs->empty() ? std::nullopt : std::optional(std::move(jobs->front()));
  }

  std::unique_ptr<Database> database_;
};

class JobsCommand final : public AdminCommand {
 public:
  explicit JobsCommand(CLI::App& app)
      : AdminCommand(app, "jobs",
                     "Inspect the jobs of a running gateway or of the library's database; retry or drop them") {
    command_->require_subcommand(1);
    option("--store", store_, "URL",
           "the jobs in this database of the library instead, as for `oncekey work`; env:VARIABLE and file:PATH keep "
           "a password out of the command line");
    list_ = command_->add_subcommand("list", "list jobs");
    list_->add_option("--state", state_, "only those in this state")->check(CLI::IsMember(kJobStates));
    list_->add_option(
        "--destination", endpoint_,
        "only those of this webhook, destination or sink, as in \"hook /hooks/stripe\" or \"to billing\"");
    list_->add_option("--limit", limit_, "at most this many")->capture_default_str()->check(CLI::Range(1, 10'000));
    show_ = add_about_one("show", "show one job: its message, and how its last attempt went");
    add_all(acting(
        add_about_one("retry", "deliver it now: a dead letter, one that pauses, or one that was delivered already")));
    add_all(acting(add_about_one("drop", "do not deliver it any more")));
  }

  int run(const Console& console) const override {
    if (all_ != id_.empty() && !list_->parsed())
      return complain(console, all_ ? "--all and an ID: give one of the two" : "give the ID of a job, or --all");
    if (all_ && !store_.empty()) return complain(console, "--all is for the jobs of a gateway: leave out --store");
    if (const Status whole = check_id(id_); store_.empty() && !all_ && !list_->parsed() && !whole)
      return complain(console, whole.fault().message);
    const bool acts = !list_->parsed() && !show_->parsed();
    if (const Status given = check_reason(); acts && !given) return complain(console, given.fault().message);
    if (const Status asked = check_confirmable(console); acts && !asked)
      return complain(console, asked.fault().message);
    std::unique_ptr<JobsDesk> desk;
    if (store_.empty()) {
      auto gateway = client();
      if (!gateway) return complain(console, gateway.fault().message);
      if (all_) return act_on_all(*gateway, console);
      desk = std::make_unique<GatewayJobs>(*std::move(gateway));
    } else {
      const auto url = resolve_secret(store_);
      if (!url) return complain(console, url.fault().message);
      auto database = open_library_database(*url);
      if (!database) return complain(console, database.fault().message, kRefused);
      desk = std::make_unique<DatabaseJobs>(*std::move(database));
    }
    if (list_->parsed()) return print(desk->list(state_, endpoint_, limit_), view_of_jobs, console);
    const auto show = [&](const std::string& id) { return desk->show(id); };
    if (show_->parsed()) return print(show(id_), view_of_job, console);
    const auto act = [&](const std::string& id) { return desk->act(id, action(), reason_); };
    const ActionText& text = text_of(job_actions(), action());
    return act_on(id_,
                  {fmt::format("{}: {}\n{}\nGo on?", action(), text.meaning, text.risk),
                   fmt::format("{}: done. {}", action(), text.meaning), show, act},
                  view_of_job, console);
  }

 private:
  CLI::App* add_about_one(const std::string& name, const std::string& description) {
    CLI::App* const one = command_->add_subcommand(name, description);
    one->add_option("ID", id_, "the job's id, or at least 8 digits of its beginning");
    return one;
  }

  void add_all(CLI::App* command) {
    CLI::Option* const all =
        command->add_flag("--all", all_, "all jobs that fit the options below; up to 10000 at once");
    command->add_option("--state", state_, "with --all: dead (the default) or waiting")
        ->check(CLI::IsMember({"dead", "waiting"}))
        ->needs(all);
    command->add_option("--destination", endpoint_, "with --all: of this webhook or destination")->needs(all);
    command->add_option("--older-than", older_than_, "with --all: received longer ago, as in 10m")->needs(all);
    command->add_option("--newer-than", newer_than_, "with --all: received since then, as in 1h")->needs(all);
  }

  // Tells how many there are, asks, begins the run and follows it to its end.
  int act_on_all(const AdminClient& gateway, const Console& console) const {
    json::object filter;
    for (const auto& [name, value] : {std::pair("state", &state_),
                                      {"destination", &endpoint_},
                                      {"older_than", &older_than_},
                                      {"newer_than", &newer_than_}}) {
      if (!value->empty()) filter[name] = *value;
    }
    const std::string target = "/api/jobs/" + action();
    int exit_code = kDone;
    const auto counted = parsed(
        gateway.post(target, json::serialize(json::object{{"filter", filter}, {"dry_run", true}})), console, exit_code);
    if (!counted) return exit_code;
    const json::value& count = member(*counted, "count");
    if (count == json::value(0)) {
      console.out << "no jobs\n";
      return kDone;
    }
    const ActionText& text = text_of(job_actions(), action());
    console.err << view_of_counted(*counted);
    if (!yes_ && !console.confirm(fmt::format("{}: {}\n{}\nGo on?", action(), text.meaning, text.risk))) {
      console.err << "nothing was changed\n";
      return kRefused;
    }
    const json::object request{{"filter", filter}, {"reason", reason_}, {"confirm", count}};
    auto run = parsed(gateway.post(target, json::serialize(request)), console, exit_code);
    if (!run) return exit_code;
    const std::string where = fmt::format("/api/jobs/runs/{}", text_of_member(*run, "id"));
    while (text_of_member(*run, "state") == "running") {
      std::this_thread::sleep_for(kProgressEvery);
      run = parsed(gateway.get(where), console, exit_code);
      if (!run) return exit_code;
    }
    if (as_json()) {
      console.out << json::serialize(*run) << "\n";
    } else {
      console.out << view_of_run(*run);
    }
    return member(*run, "failed") == json::value(0) && text_of_member(*run, "state") == "done" ? kDone : kRefused;
  }

  CLI::App* list_;
  CLI::App* show_;
  std::string store_;
  std::string state_;
  std::string endpoint_;
  std::string older_than_;
  std::string newer_than_;
  std::uint32_t limit_ = 100;
  std::string id_;
  bool all_ = false;
};

} // namespace

std::unique_ptr<Subcommand> jobs_command(CLI::App& app) { return std::make_unique<JobsCommand>(app); }

} // namespace oncekey
