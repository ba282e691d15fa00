#include "base/durations.h"
#include "base/log.h"
#include "base/masked_url.h"
#include "cli/admin_talk.h"
#include "cli/audit_setup.h"
#include "cli/progress.h"
#include "cli/views.h"
#include "config/sealing_key_file.h"
#include "config/secret.h"
#include "store/open_store.h"
#include "store/store_tools.h"

#include <boost/json.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

namespace oncekey {
namespace {

namespace json = boost::json;

constexpr std::chrono::milliseconds kBackupAskedEvery{100};

json::object report_json(const std::string& store, const StoreReport& report) {
  json::array buckets;
  for (const StoreBucket& bucket : report.details.buckets) {
    buckets.push_back(json::object{{"name", bucket.name},
                                   {"holds", bucket.holds},
                                   {"ends", iso_time(bucket.ends)},
                                   {"records", bucket.records},
                                   {"bytes", bucket.bytes}});
  }
  json::object body{{"store", store},
                    {"records", report.records()},
                    {"in_progress", report.in_progress},
                    {"indeterminate", report.indeterminate},
                    {"completed", report.completed},
                    {"jobs", report.jobs},
                    {"jobs_not_over", report.jobs_not_over},
                    {"body_files", report.body_files},
                    {"bytes_on_disk", report.bytes_on_disk},
                    {"buckets", std::move(buckets)}};
  if (!report.details.id.empty()) {
    body["id"] = report.details.id;
    body["format"] = report.format;
    body["newest_sequence"] = report.details.newest_sequence;
    body["log_segments"] = report.details.log_segments;
    body["durability"] = "power";
  }
  if (report.backup) body["backup_made"] = iso_time(report.backup->made);
  if (report.loss_accepted) body["loss_accepted"] = true;
  return body;
}

json::object made_json(const BackupMade& made) {
  return {{"folder", made.folder},
          {"store", made.store},
          {"sequence", made.sequence},
          {"made", iso_time(made.made)},
          {"in_progress", made.in_progress},
          {"files", made.files},
          {"bytes", made.bytes}};
}

std::uint64_t number_at(const json::value& object, std::string_view name) {
  const json::value& value = member(object, name);
  return value.is_int64() ? static_cast<std::uint64_t>(value.get_int64()) : value.is_uint64() ? value.get_uint64() : 0;
}
std::string word_at(const json::value& object, std::string_view name) {
  const json::value& value = member(object, name);
  return value.is_string() ? std::string(value.get_string()) : "";
}

// Of GET /api/store, or of a report.
std::string view_of_store(const json::value& store) {
  std::string text;
  const auto line = [&](std::string_view name, const std::string& value) {
    if (!value.empty()) text += fmt::format("{:<16} {}\n", name, value);
  };
  line("store", printable(word_at(store, "store"), 200));
  line("id", word_at(store, "id"));
  line("durability", word_at(store, "durability"));
  if (const json::value& takes = member(store, "takes_claims"); takes.is_bool())
    line("claims", takes.get_bool() ? "are taken" : "are refused: " + printable(word_at(store, "reason"), 1000));
  if (member(store, "loss_accepted").is_bool()) {
    line("claims", "will be accepted at the next start: an operator has accepted the loss");
  } else if (const std::string made = word_at(store, "backup_made"); !made.empty()) {
    line("claims", fmt::format("will be refused: it is a backup made at {}", made));
  }
  line("records", fmt::format("about {}", number_at(store, "records")));
  if (member(store, "in_progress").is_number()) {
    line("in progress", std::to_string(number_at(store, "in_progress")));
    line("indeterminate", std::to_string(number_at(store, "indeterminate")));
  }
  if (const json::value& waiting = member(store, "waiting"); waiting.is_object()) {
    line("waiting keys", fmt::format("{} abandoned, {} indeterminate", number_at(waiting, "abandoned"),
                                     number_at(waiting, "indeterminate")));
  }
  line("on disk", shown_bytes(number_at(store, "bytes_on_disk")));
  if (member(store, "bytes_in_memory").is_number()) line("in memory", shown_bytes(number_at(store, "bytes_in_memory")));
  if (member(store, "newest_sequence").is_number()) {
    line("newest write", fmt::format("number {}", number_at(store, "newest_sequence")));
    line("log segments", std::to_string(number_at(store, "log_segments")));
  }
  if (member(store, "jobs_not_over").is_number())
    line("jobs not over", std::to_string(number_at(store, "jobs_not_over")));
  if (const json::array* const jobs = member(store, "jobs").if_array()) {
    for (const json::value& count : *jobs)
      line("jobs", fmt::format("{} {} for {}", number_at(count, "jobs"), word_at(count, "state"),
                               printable(word_at(count, "destination"), 100)));
  }
  const json::array* const buckets = member(store, "buckets").if_array();
  if (buckets == nullptr || buckets->empty()) return text;
  std::vector<std::vector<std::string>> rows{{"BUCKET", "HOLDS", "EXPIRES", "RECORDS", "SIZE"}};
  for (const json::value& bucket : *buckets) {
    rows.push_back({word_at(bucket, "name"), word_at(bucket, "holds"), word_at(bucket, "ends"),
                    fmt::format("about {}", number_at(bucket, "records")), shown_bytes(number_at(bucket, "bytes"))});
  }
  return text + "\n" + format_table(rows);
}

class StoreCommand final : public AdminCommand {
 public:
  explicit StoreCommand(CLI::App& app)
      : AdminCommand(app, "store", "Verify, measure, back up or restore a store, and accept that it has lost records"),
        verify_(command_->add_subcommand("verify",
                                         "Read everything in a store that no gateway has open, and say what is wrong")),
        stats_(command_->add_subcommand("stats", "Say what a store holds, beside a running gateway or without one")),
        backup_(command_->add_subcommand("backup", "Copy a store to a new folder, while a gateway uses it or not")),
        restore_(command_->add_subcommand("restore", "Make a new store out of a backup")),
        migrate_(
            command_->add_subcommand("migrate", "Bring a Postgres store's schema up to this version, as serve does")),
        accept_loss_(command_->add_subcommand(
            "accept-loss",
            "Confirm that the records a store has lost are accounted for: gateways accept claims again")) {
    command_->require_subcommand(1);
    for (CLI::App* const command : {verify_, stats_, backup_, migrate_, accept_loss_}) {
      CLI::Option* const store = command->add_option(
          "--store", url_, "journal:PATH, postgres://, redis:// or redis+cluster://, or env:NAME or file:PATH");
      store->type_name("URL");
    }
    backup_->add_option("DEST", to_, "folder to make, on the gateway's machine; it must not exist")->required();
    backup_->add_option("--reason", reason_, "why; goes into the audit line of a running gateway");
    restore_->add_option("SRC", from_, "a backup")->required();
    restore_->add_option("PATH", to_, "folder of the new store, as in journal:PATH; it must not exist")->required();
    accept_loss_->add_flag("--yes", yes_, "do not ask");
    for (CLI::App* const command : {restore_, migrate_, accept_loss_})
      command->add_option("--reason", reason_, "why; goes into the audit log of the next gateway");
  }

  int run(const Console& console) const override {
    ::umask(S_IRWXG | S_IRWXO);
    if (restore_->parsed()) return restore(console);
    const Result<Config> settings = this->settings();
    if (!settings) return complain(console, settings.fault().message);
    const Result<std::string> url = url_.empty() ? Result<std::string>(settings->store) : resolve_secret(url_);
    if (!url) return complain(console, url.fault().message);
    if (const Status usable = check_store_url(*url); !usable) return complain(console, usable.fault());
    // The default store may be another one than the operator means.
    if ((migrate_->parsed() || accept_loss_->parsed()) && url_.empty() && config_file().empty())
      return complain(console, "give --store or --config: the default store is not changed");
    if (verify_->parsed()) return verify(*url, *settings, console);
    if (stats_->parsed()) return stats(*url, *settings, console);
    if (backup_->parsed()) return back_up(*url, console);
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
    leave_for_audit(*url, migrate_->parsed() ? "migrate_store" : "accept_loss", console);
    return kDone;
  }

 private:
  // What was done is done: that its line could not be left is said and no more.
  void leave_for_audit(const std::string& url, std::string_view action, const Console& console) const {
    Log log(LogLevel::error);
    if (const Status left = leave_pending(url, action, reason_, log); !left)
      console.err << fmt::format("the audit log will have no line of this: {}\n", left.fault().message);
  }

  int verify(const std::string& url, const Config& settings, const Console& console) const {
    if (const auto holder = process_with_store(url)) {
      return complain(console,
                      fmt::format("{} is in use by process {}. Verify a backup of it instead, which a running gateway "
                                  "makes: oncekey store backup DEST, then oncekey store verify --store journal:DEST",
                                  masked_url(url), *holder),
                      kUnreachable);
    }
    const Result<StoreReport> report = read_store(url, settings, Thoroughness::everything, console);
    if (!report) return complain(console, report.fault(), kUnreachable);
    if (as_json()) {
      json::object body = report_json(masked_url(url), *report);
      json::array problems;
      for (const StoreProblem& problem : report->problems)
        problems.push_back(json::object{{"what", problem.what}, {"next", problem.next}});
      body["sound"] = report->sound();
      body["problems"] = std::move(problems);
      body["problems_left_out"] = report->problems_left_out;
      body["notes"] = json::value_from(report->notes);
      console.out << json::serialize(body) << "\n";
    } else {
      for (const StoreProblem& problem : report->problems)
        console.out << "problem: " << printable(problem.what, 2000) << "\n  next: " << problem.next << "\n";
      if (report->problems_left_out != 0)
        console.out << fmt::format("and {} more of the same\n", report->problems_left_out);
      for (const std::string& note : report->notes) console.out << "note: " << printable(note, 2000) << "\n";
      console.out << fmt::format("{}: {}; {} records, {} jobs, {} read\n", masked_url(url),
                                 report->sound() ? "sound" : "damaged", report->records(),
                                 std::max(report->jobs, report->jobs_not_over), shown_bytes(report->bytes_on_disk));
    }
    return report->sound() ? kDone : kRefused;
  }

  int stats(const std::string& url, const Config& settings, const Console& console) const {
    if (folder_of_store(url) && !process_with_store(url)) {
      const Result<StoreReport> report = read_store(url, settings, Thoroughness::numbers, console);
      if (!report) return complain(console, report.fault(), kUnreachable);
      if (!report->sound()) {
        return complain(console,
                        fmt::format("{}; next: {}", report->problems.front().what, report->problems.front().next),
                        kRefused);
      }
      const json::object body = report_json(masked_url(url), *report);
      console.out << (as_json() ? json::serialize(body) + "\n" : view_of_store(body));
      return kDone;
    }
    const Result<AdminClient> gateway = client(url);
    if (!gateway) return complain(console, gateway.fault().message);
    return print(gateway->get("/api/store"), view_of_store, console);
  }

  int back_up(const std::string& url, const Console& console) const {
    if (const auto other = who_backs_up(url)) return complain(console, *other);
    std::error_code error;
    const std::string to = std::filesystem::absolute(to_, error).lexically_normal().native();
    if (process_with_store(url)) return back_up_by_gateway(url, to, console);
    Progress progress(console.err, "backing up", terminal_width(STDERR_FILENO));
    const Result<BackupMade> made = back_up_store(
        url, to, [&](std::uint64_t done, std::uint64_t total) { return progress.tell(done, total), true; });
    progress.end();
    if (!made) return complain(console, made.fault(), kRefused);
    say_made(made_json(*made), console);
    return kDone;
  }

  // The gateway makes it, as its own user; this process looks on.
  int back_up_by_gateway(const std::string& url, const std::string& to, const Console& console) const {
    const Result<AdminClient> gateway = client(url);
    if (!gateway) return complain(console, gateway.fault().message);
    const json::object asked{{"to", to}, {"reason", reason_.empty() ? "oncekey store backup" : reason_}};
    int exit_code = kDone;
    Progress progress(console.err, "backing up", terminal_width(STDERR_FILENO));
    auto answer = gateway->post("/api/store/backup", json::serialize(asked));
    if (answer && answer->status == 202) answer->status = 200;
    for (;; answer = gateway->get("/api/store/backup")) {
      if (!answer || answer->status != 200) progress.end();
      const auto state = parsed(answer, console, exit_code);
      if (!state) return exit_code;
      const std::string phase = word_at(*state, "state");
      if (phase != "running") progress.end();
      if (word_at(*state, "to") != to || phase == "none")
        return complain(console, "the gateway was restarted before the backup was whole: begin again", kRefused);
      if (phase == "failed") return complain(console, word_at(*state, "error"), kRefused);
      if (phase == "done") {
        json::object body = state->as_object();
        body["folder"] = to;
        say_made(body, console);
        return kDone;
      }
      progress.tell(number_at(*state, "bytes"), number_at(*state, "bytes_total"));
      std::this_thread::sleep_for(kBackupAskedEvery);
    }
  }

  void say_made(const json::value& made, const Console& console) const {
    if (as_json()) {
      console.out << json::serialize(made) << "\n";
      return;
    }
    console.out << fmt::format("{}: {} in {} files, with every write up to number {}, made at {}\n",
                               word_at(made, "folder"), shown_bytes(number_at(made, "bytes")), number_at(made, "files"),
                               number_at(made, "sequence"), word_at(made, "made"));
  }

  int restore(const Console& console) const {
    const std::string_view prefix = "journal:";
    const std::string folder = to_.starts_with(prefix) ? to_.substr(prefix.size()) : to_;
    if (folder.find("://") != std::string::npos || folder == "memory:") {
      const auto other = who_backs_up(folder);
      return complain(console, other ? *other : "give the folder of the new store");
    }
    std::error_code error;
    const std::string to = std::filesystem::absolute(folder, error).lexically_normal().native();
    Progress progress(console.err, "restoring", terminal_width(STDERR_FILENO));
    const Result<BackupMade> made = restore_store(
        from_, to, [&](std::uint64_t done, std::uint64_t total) { return progress.tell(done, total), true; });
    progress.end();
    if (!made) return complain(console, made.fault(), kRefused);
    leave_for_audit("journal:" + to, "restore_store", console);
    if (as_json()) {
      console.out << json::serialize(made_json(*made)) << "\n";
      return kDone;
    }
    console.out << fmt::format(
        "{}: restored as of {} ({} files, {})\n"
        "Keys claimed after that are unknown to it, and {} that were in progress then may have been answered since: a\n"
        "retry of any of them would be executed again. So a gateway on it replays what it knows and refuses new "
        "claims,\n"
        "until you have found out what was lost and say so with:\n"
        "  oncekey store accept-loss --store journal:{}\n",
        to, iso_time(made->made), made->files, shown_bytes(made->bytes), made->in_progress, to);
    return kDone;
  }

  Result<StoreReport> read_store(const std::string& url, const Config& settings, Thoroughness thoroughness,
                                 const Console& console) const {
    std::unique_ptr<Sealer> sealer;
    if (!settings.encryption_key_file.empty()) {
      auto keys = load_sealing_keys(settings.encryption_key_file);
      if (!keys) return std::move(keys).fault();
      sealer = std::make_unique<Sealer>(*std::move(keys));
    }
    Log log(LogLevel::error);
    Progress progress(console.err, "verifying", terminal_width(STDERR_FILENO));
    return verify_store(url, {log, thoroughness, sealer.get(), [&](std::uint64_t done, std::uint64_t total) {
                                return progress.tell(done, total), true;
                              }});
  }

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

  CLI::App* verify_;
  CLI::App* stats_;
  CLI::App* backup_;
  CLI::App* restore_;
  CLI::App* migrate_;
  CLI::App* accept_loss_;
  std::string url_;
  std::string from_;
  std::string to_;
};

} // namespace

std::unique_ptr<Subcommand> store_command(CLI::App& app) { return std::make_unique<StoreCommand>(app); }

} // namespace oncekey
