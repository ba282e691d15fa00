#include "cli/subcommand.h"

#include "base/durations.h"
#include "base/log.h"
#include "base/masked_url.h"
#include "config/secret.h"

#include <oncekey/workers.h>

#include <csignal>
#include <set>
#include <thread>

namespace oncekey {
namespace {

using Sinks = std::map<std::string, std::shared_ptr<Sink>>;
using ResumeByName = std::map<std::string, Completer::Resume>;

// "mail=https://..." in two; a fault where the sign is missing.
Result<std::pair<std::string, std::string>> split_at(const std::string& text, char sign, std::string_view form) {
  const std::size_t at = text.find(sign);
  if (at == 0 || at == std::string::npos || at + 1 == text.size()) {
    return invalid(fmt::format("\"{}\" does not have the form {}", masked_url(text), form));
  }
  return std::pair(text.substr(0, at), text.substr(at + 1));
}

Status add_sink(Sinks& sinks, const std::string& name, std::unique_ptr<Sink> sink) {
  if (sinks.try_emplace(name, std::move(sink)).second) return ok_status();
  return invalid(fmt::format("the sink {} is given twice: the last one would get all of its jobs", name));
}

// NAME=env:VARIABLE or NAME=file:PATH, by sink. Not the value itself: every user of the machine sees the arguments.
Result<std::map<std::string, std::string>> authorizations(const std::vector<std::string>& given) {
  constexpr std::string_view kForm = "NAME=env:VARIABLE or NAME=file:PATH";
  std::map<std::string, std::string> by_sink;
  for (const std::string& text : given) {
    const auto named = split_at(text, '=', kForm);
    if (!named) return named.fault();
    const std::string& kept = named->second;
    if (!kept.starts_with("env:") && !kept.starts_with("file:"))
      return invalid(fmt::format("an authorization has the form {}", kForm));
    auto value = resolve_secret(kept);
    if (!value) return std::move(value).fault();
    by_sink[named->first] = *std::move(value);
  }
  return by_sink;
}

using MakeSink = Result<std::unique_ptr<Sink>> (*)(std::string_view redis_url, std::string name, RedisSinkOptions);

// Receivers that are given as NAME=URL in the option `flag`, each with its authorization if there is one. `options` is
// for all of them.
Status add_receivers(
    std::string_view flag, std::string_view form, const std::vector<std::string>& given,
    const std::vector<std::string>& authorized, HttpSinkOptions options,
    const std::function<Status(const std::string& name, const std::string& url, const HttpSinkOptions&)>& add) {
  auto by_name = authorizations(authorized);
  if (!by_name) return std::move(by_name).fault();
  for (const std::string& text : given) {
    const auto named = split_at(text, '=', form);
    if (!named) return named.fault();
    const auto found = by_name->extract(named->first);
    options.authorization = found ? found.mapped() : "";
    if (Status added = add(named->first, named->second, options); !added) return added;
  }
  if (by_name->empty()) return ok_status();
  return invalid(
      fmt::format("{0}-authorization names {1}, and there is no {0} of that name", flag, by_name->begin()->first));
}

Status add_redis(Sinks& sinks, const std::vector<std::string>& given, std::string_view form, MakeSink make) {
  for (const std::string& text : given) {
    const auto named = split_at(text, '=', form);
    if (!named) return named.fault();
    const auto target = split_at(named->second, '@', form);
    if (!target) return target.fault();
    auto sink = make(target->second, target->first, {});
    if (!sink) return std::move(sink).fault();
    if (auto added = add_sink(sinks, named->first, *std::move(sink)); !added) return added;
  }
  return ok_status();
}

// The workers that have something to do, and the log lines of what they did.
class Crew {
 public:
  Crew(Database& database, Sinks sinks, ResumeByName resume_by_name, const CompleterOptions& options, Log& log)
      : database_(database), log_(log), reaper_(database) {
    for (const auto& [name, sink] : sinks) sink_names_.insert(name);
    add("reaper", reaper_);
    if (!resume_by_name.empty()) add("completer", completer_.emplace(database, std::move(resume_by_name), options));
    if (!sinks.empty()) add("enqueuer", enqueuer_.emplace(database, std::move(sinks)));
  }

  // Runs all workers until none of them has anything to do. Failed work is put off, so that this ends. One worker's
  // failure does not stop the others. Returns whether all went well.
  bool run_once() {
    bool well = true;
    for (bool more = completer_.has_value(); more;) {
      const auto counts = completer_->run_once();
      more = counts && counts->picked != 0;
      well = well && counts && counts->failed == 0 && counts->dead == 0 && counts->unknown == 0;
    }
    for (bool more = enqueuer_.has_value(); more;) {
      const auto counts = enqueuer_->run_once();
      more = counts && counts->delivered != 0;
      well = well && counts && counts->refused == 0 && counts->sinks_down == 0;
    }
    if (!reaper_.run_once()) well = false;
    tell();
    tell_other_sinks();
    return well;
  }

  void run_until_signalled() {
    // Blocked before the threads start, so that this thread gets the signals.
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    pthread_sigmask(SIG_BLOCK, &ends, nullptr);
    std::vector<std::thread> threads;
    for (BackgroundWorker* const worker : workers_) threads.emplace_back([worker] { worker->run(); });
    int signal = 0;
    sigwait(&ends, &signal);
    for (BackgroundWorker* const worker : workers_) worker->stop();
    log_.info("draining"); // from here on no worker begins anything new
    for (std::thread& thread : threads) thread.join();
    tell();
  }

 private:
  // Jobs whose sink this process does not have: another process delivers them, or the name is misspelled.
  void tell_other_sinks() {
    const auto backlog = count_backlog(database_);
    if (!backlog) return;
    for (const auto& [name, waiting] : backlog->by_sink) {
      if (sink_names_.contains(name)) continue;
      log_.info("left_alone", {{"sink", name},
                               {"jobs", waiting.staged},
                               {"oldest_s", waiting.oldest_age.count() / 1000},
                               {"why", "this process has no such sink"}});
    }
  }

  void add(std::string_view whose, BackgroundWorker& worker) {
    workers_.push_back(&worker);
    worker.on_trouble([this, whose](const std::string& what, const std::optional<std::string>& why) {
      if (why) {
        log_.warning("failing", {{"worker", whose}, {"what", what}, {"why", *why}});
      } else {
        log_.info("working_again", {{"worker", whose}, {"what", what}});
      }
    });
  }

  void tell() {
    if (completer_) {
      const CompleterCounts counts = completer_->metrics();
      log_.info("completer", {{"picked", counts.picked},
                              {"finished", counts.finished},
                              {"not_yet", counts.not_yet},
                              {"failed", counts.failed},
                              {"dead", counts.dead},
                              {"unknown", counts.unknown}});
    }
    if (enqueuer_) {
      const EnqueuerCounts counts = enqueuer_->metrics();
      log_.info("enqueuer", {{"delivered", counts.delivered},
                             {"refused", counts.refused},
                             {"dead", counts.dead},
                             {"sinks_down", counts.sinks_down}});
    }
    const ReaperCounts counts = reaper_.metrics();
    log_.info("reaper", {{"answer_buckets", counts.answer_buckets}, {"inbox_buckets", counts.inbox_buckets}});
  }

  Database& database_;
  Log& log_;
  std::set<std::string> sink_names_;
  std::optional<Completer> completer_;
  std::optional<Enqueuer> enqueuer_;
  Reaper reaper_;
  std::vector<BackgroundWorker*> workers_; // those above
};

class WorkCommand final : public Subcommand {
 public:
  explicit WorkCommand(CLI::App& app)
      : Subcommand(app, "work", "Run the workers of the library beside an application: completer, enqueuer, reaper") {
    option("--store", store_, "URL", "the application's database: sqlite:PATH or postgres://, env:NAME or file:PATH")
        ->required();
    option("--resume", resumes_, "OPERATION=URL",
           "where the application resumes the operations of this name: the completer POSTs their ids there; may be "
           "repeated");
    option("--resume-authorization", resume_authorizations_, "OPERATION=SECRET",
           "sent to this --resume as Authorization: env:VARIABLE or file:PATH")
        ->needs("--resume");
    option("--resume-concurrency", completing_.concurrency, "NUMBER", "operations resumed at a time (default 8)")
        ->check(CLI::Range(1, 1000));
    option("--sink", http_sinks_, "NAME=URL", "deliver the jobs of this sink by HTTP POST; may be repeated");
    option("--sink-authorization", sink_authorizations_, "NAME=SECRET",
           "sent to this --sink as Authorization: env:VARIABLE or file:PATH");
    option("--sink-concurrency", sink_concurrency_, "NUMBER",
           "jobs under way at a time for each --sink (default 1, which keeps their order)")
        ->check(CLI::Range(1, 1000));
    option("--cacert", ca_file_, "FILE", "PEM certificates to trust for https (default: the system's)");
    option("--sidekiq", sidekiq_sinks_, "NAME=QUEUE@REDIS-URL", "push the jobs of this sink to a Sidekiq queue");
    option("--stream", stream_sinks_, "NAME=STREAM@REDIS-URL", "append the jobs of this sink to a Redis stream");
    option("--grace", grace_, "DURATION", "operations younger than this are left to their clients (default 5m)");
    command_->add_flag("--once", once_,
                       "do what there is to do, say what was done, and end: with 1 if anything failed");
    command_->add_flag("--dead", list_dead_, "list the dead letters and end; oncekey jobs retries and drops jobs");
    option("--restart-operation", restart_operation_, "ID", "let a dead operation be tried again, and end");
    command_
        ->add_flag("--confirmed-not-executed", confirmed_not_executed_,
                   "with --restart-operation: you have checked with the other API that the call was not executed. "
                   "Without it, a call whose key that API may have forgotten is not made again")
        ->needs("--restart-operation");
  }

  int run(const Console& console) const override {
    const Result<std::string> url = resolve_secret(store_);
    if (!url) return complain(console, url.fault());
    const Result<Millis> grace = parse_duration(grace_);
    if (!grace) return complain(console, grace.fault());
    Sinks sinks;
    ResumeByName resume;
    for (const Status& added :
         {add_http(sinks), add_redis(sinks, sidekiq_sinks_, "NAME=QUEUE@redis://...", sidekiq_sink),
          add_redis(sinks, stream_sinks_, "NAME=STREAM@redis://...", redis_stream_sink), add_resumes(resume)}) {
      if (!added) return complain(console, added.fault());
    }
    const auto database = open_library_database(*url);
    if (!database) return complain(console, database.fault());
    if (list_dead_) return list_dead(**database, console);
    if (!restart_operation_.empty()) return restart(**database, console);

    Log log(LogLevel::info);
    CompleterOptions completing = completing_;
    completing.grace = *grace;
    Crew crew(**database, std::move(sinks), std::move(resume), completing, log);
    if (once_) return crew.run_once() ? kDone : kRefused;
    log.info("working", {{"store", masked_url(*url)}, {"completer", resumes_.empty() ? "no" : "yes"}});
    crew.run_until_signalled();
    return kDone;
  }

 private:
  Status add_http(Sinks& sinks) const {
    HttpSinkOptions options;
    options.concurrency = sink_concurrency_;
    options.ca_file = ca_file_;
    return add_receivers("--sink", "NAME=URL", http_sinks_, sink_authorizations_, options,
                         [&](const std::string& name, const std::string& to, const HttpSinkOptions& how) -> Status {
                           auto sink = http_sink(to, how);
                           if (!sink) return std::move(sink).fault();
                           return add_sink(sinks, name, *std::move(sink));
                         });
  }

  // Each operation once.
  Status add_resumes(ResumeByName& resume) const {
    HttpSinkOptions options;
    options.ca_file = ca_file_;
    return add_receivers("--resume", "OPERATION=URL, with the name that the application's Operation has", resumes_,
                         resume_authorizations_, options,
                         [&](const std::string& name, const std::string& to, const HttpSinkOptions& how) -> Status {
                           auto made = resume_by_http(to, how);
                           if (!made) return std::move(made).fault();
                           if (resume.try_emplace(name, *std::move(made)).second) return ok_status();
                           return invalid(fmt::format("--resume is given twice for the operation {}", name));
                         });
  }

  int list_dead(Database& database, const Console& console) const {
    const auto operations = list_dead_operations(database);
    if (!operations) return complain(console, operations.fault());
    const auto jobs = list_jobs(database, {.state = TableJobState::dead});
    if (!jobs) return complain(console, jobs.fault());
    for (const DeadOperation& dead : *operations) {
      console.out << fmt::format("operation {} {} at {} key {} after {} attempts: {}\n", to_hex(dead.operation.id),
                                 dead.operation.operation, dead.operation.recovery_point, dead.operation.key,
                                 dead.operation.attempts, dead.why);
    }
    for (const TableJob& dead : *jobs) {
      console.out << fmt::format("job {} {} for {}: {}\n", dead.job.id, dead.job.name, dead.job.sink, dead.last_error);
    }
    if (operations->empty() && jobs->empty()) console.out << "no dead letters\n";
    const auto backlog = count_backlog(database);
    if (!backlog) return complain(console, backlog.fault());
    if (backlog->dead_operations > operations->size() || backlog->dead_jobs > jobs->size()) {
      console.out << fmt::format("these are the first; in all there are {} operations and {} jobs\n",
                                 backlog->dead_operations, backlog->dead_jobs);
    }
    return kDone;
  }

  int restart(Database& database, const Console& console) const {
    const std::optional<RecordId> id = record_id_from_hex(restart_operation_);
    if (!id) return complain(console, "--restart-operation wants the 64 hex digits that --dead shows");
    const auto restarted = restart_dead_operation(
        database, *id, confirmed_not_executed_ ? ForeignSide::looked_at : ForeignSide::not_looked_at);
    if (!restarted) return complain(console, restarted.fault());
    console.out << (*restarted ? "it will be tried again at once\n" : "there is no such dead letter\n");
    return *restarted ? kDone : kRefused;
  }

  std::string store_;
  std::vector<std::string> resumes_;
  std::vector<std::string> resume_authorizations_;
  CompleterOptions completing_;
  std::size_t sink_concurrency_ = 1;
  std::vector<std::string> http_sinks_;
  std::vector<std::string> sink_authorizations_;
  std::vector<std::string> sidekiq_sinks_;
  std::vector<std::string> stream_sinks_;
  std::string ca_file_;
  std::string grace_ = "5m";
  bool once_ = false;
  bool list_dead_ = false;
  std::string restart_operation_;
  bool confirmed_not_executed_ = false;
};

class SchemaCommand final : public Subcommand {
 public:
  explicit SchemaCommand(CLI::App& app) : Subcommand(app, "schema", "The tables of the library of atomic phases") {
    command_->require_subcommand(1);
    CLI::App* const print =
        command_->add_subcommand("print", "Print them as SQL, to read or for migrations of your own");
    print->add_option("DATABASE", dialect_, "sqlite or postgres")->required();
  }

  int run(const Console& console) const override {
    const Result<std::string_view> text = schema_text(dialect_);
    if (!text) return complain(console, text.fault().message);
    console.out << *text;
    return kDone;
  }

 private:
  std::string dialect_;
};

} // namespace

std::unique_ptr<Subcommand> work_command(CLI::App& app) { return std::make_unique<WorkCommand>(app); }
std::unique_ptr<Subcommand> schema_command(CLI::App& app) { return std::make_unique<SchemaCommand>(app); }

} // namespace oncekey
