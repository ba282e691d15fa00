#include "audit/read_audit.h"
#include "audit/verify.h"
#include "base/ascii.h"
#include "base/masked_url.h"
#include "base/timestamp.h"
#include "cli/admin_talk.h"
#include "cli/audit_setup.h"
#include "cli/audit_summary.h"
#include "cli/progress.h"
#include "cli/views.h"
#include "config/secret.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <set>

namespace oncekey {
namespace {

namespace json = boost::json;

// Records whose actions are looked for. The gateway takes no more.
constexpr std::size_t kRecordsMax = 1000;
constexpr std::size_t kRecordDigits = 64;

// What happened, in words of the table.
std::string what_of(const json::value& line) {
  const std::string event = audit_text(line, "event");
  if (event == "action") return fmt::format("{} ({})", audit_text(line, "action"), audit_text(line, "result"));
  const std::string decision = audit_text(line, "decision");
  if (event == "refused") return fmt::format("refused: {}", decision);
  return event;
}

std::string view_of_lines(const json::array& lines) {
  if (lines.empty()) return "no line of the audit log fits\n";
  std::vector<std::vector<std::string>> rows{{"TIME", "WHAT", "STATUS", "FENCE", "RECORD", "KEY", "GATEWAY", "MORE"}};
  for (const json::value& line : lines) {
    std::string more;
    const auto add = [&](std::string_view name, std::string_view title) {
      if (const std::string text = audit_text(line, name); !text.empty())
        more += fmt::format("{}{}{}", more.empty() ? "" : ", ", title, text);
    };
    add("who", "by ");
    add("reason", "");
    add("trace", "trace ");
    add("first_trace", "first trace ");
    const auto cell = [&](std::string_view name, std::size_t most) {
      const std::string text = audit_text(line, name);
      return text.empty() ? std::string("-") : text.substr(0, most);
    };
    rows.push_back({cell("at", 24), what_of(line), cell("status", 3), cell("fence", 20),
                    cell("id", kRecordBeginningMin), cell("key", kAuditTextShown), cell("gateway", 32),
                    more.empty() ? "-" : more});
  }
  return format_table(rows);
}

// The records that lines name, each once.
std::vector<std::string> records_of(const json::array& lines) {
  std::set<std::string> ids;
  for (const json::value& line : lines) {
    if (const json::string* const id = member(line, "id").if_string()) ids.emplace(id->data(), id->size());
  }
  return {ids.begin(), ids.end()};
}

class AuditCommand final : public AdminCommand {
 public:
  explicit AuditCommand(CLI::App& app)
      : AdminCommand(app, "audit", "Read a gateway's audit log, and verify that no line was changed or removed") {
    command_->require_subcommand(1);
    show_ = command_->add_subcommand(
        "show", "lines about one key, or all; shows when it was executed and when its answer was given again");
    show_->add_option("--key", key_, "the key that the client sent");
    show_->add_option("--principal", principal_,
                      "with --key: the account, as the client sends it; - reads it from standard input");
    show_->add_option("--method", method_, "with --key: of the request");
    show_->add_option("--path", path_, "with --key: of the request");
    show_->add_option("--record", record_, "lines about this record: its id, or at least the first 12 digits");
    show_->add_option("--since", since_, "from this time on, UTC, as in 2026-01-02 or 2026-01-02T03:04");
    show_->add_option("--until", until_, "before this time");
    show_->add_option("--limit", limit_, "at most so many, the newest")
        ->capture_default_str()
        ->check(CLI::Range(1, 1'000'000));
    verify_ = command_->add_subcommand(
        "verify", "check every line against the one before it, and the last one against the head kept in the store");
    verify_->add_option("FILES", files_, "these files; by default those of --log, of --config or of ./oncekey-data");
    for (CLI::App* const command : {show_, verify_}) {
      command->add_option("--log", log_, "the log's file; rotated files beside it belong to it")->type_name("FILE");
    }
    verify_->add_option("--from", from_, "the log may begin with this line or an earlier one: older files are archived")
        ->type_name("LINE");
    verify_->add_option("--store", store_, "the store that keeps the head (default: that of --config)")
        ->type_name("URL");
  }

  int run(const Console& console) const override { return verify_->parsed() ? verify(console) : show(console); }

 private:
  Result<Config> config() const {
    Config config;
    if (!config_file().empty()) {
      auto read = load_admin_settings(config_file());
      if (!read) return read;
      config = *std::move(read);
    }
    if (!store_.empty()) {
      auto url = resolve_secret(store_);
      if (!url) return url.fault();
      config.store = *std::move(url);
    }
    if (!log_.empty()) config.audit_log = log_;
    return config;
  }

  int verify(const Console& console) const {
    const Result<Config> settings = config();
    if (!settings) return complain(console, settings.fault().message);
    Log log(LogLevel::error);
    // The head before the lines: a gateway at work may add to both.
    const auto heads = load_chain_heads(settings->store, log);
    if (!heads) return complain(console, heads.fault().message, kUnreachable);
    if (!*heads)
      return complain(console,
                      fmt::format("the store {} keeps no head of an audit log: no gateway has written one, or this is "
                                  "another store (--store or --config names it)",
                                  masked_url(settings->store)),
                      kRefused);
    const std::string path = audit_log_path(*settings, **heads);
    if (files_.empty() && path == "off") return complain(console, "there is no audit log here: give --log FILE");
    const Result<AuditFiles> found = files_.empty() ? audit_files_of(path) : audit_files(files_);
    if (!found) return complain(console, found.fault().message, kRefused);
    // Files that were named may be some of many.
    const std::uint64_t from = files_.empty() ? from_ : std::numeric_limits<std::uint64_t>::max();
    Progress progress(console.err, "verifying", terminal_width(STDERR_FILENO));
    Result<AuditVerdict> verdict = verify_audit(
        *found, **heads, [&](std::uint64_t done, std::uint64_t all) { progress.tell(done, all); }, from);
    progress.end();
    if (!verdict) return complain(console, verdict.fault().message, kRefused);
    const auto pending = load_pending(settings->store, log);
    if (!pending) return complain(console, pending.fault().message, kUnreachable);
    for (const PendingAction& each : *pending) {
      verdict->notices.push_back(fmt::format("{} by {} at {} is in no log yet: the next gateway that looks writes it",
                                             each.action, each.who, each.time));
    }
    return as_json() ? print_json(*verdict, *found, console) : print_text(*verdict, *found, path, console);
  }

  static int exit_code(const AuditVerdict& verdict) {
    return verdict.broken.empty() && verdict.lines > 0 ? kDone : kRefused;
  }

  static int print_json(const AuditVerdict& verdict, const AuditFiles& files, const Console& console) {
    const auto texts = [](const std::vector<std::string>& all) {
      json::array out;
      for (const std::string& text : all) out.emplace_back(text);
      return out;
    };
    const json::object out{{"whole", exit_code(verdict) == kDone},
                           {"chain", verdict.chain},
                           {"files", files.files.size()},
                           {"lines", verdict.lines},
                           {"first", verdict.first.n},
                           {"last", verdict.last.n},
                           {"last_hash", verdict.last.hash},
                           {"not_covered", verdict.newer},
                           {"broken", texts(verdict.broken)},
                           {"notices", texts(verdict.notices)},
                           {"left_out", texts(files.others)}};
    console.out << json::serialize(out) << "\n";
    return exit_code(verdict);
  }

  static int print_text(const AuditVerdict& verdict, const AuditFiles& files, const std::string& path,
                        const Console& console) {
    for (const std::string& other : files.others) console.err << "left out: " << other << "\n";
    for (const std::string& notice : verdict.notices) console.out << "notice: " << notice << "\n";
    for (const std::string& broken : verdict.broken) console.out << "BROKEN: " << broken << "\n";
    if (verdict.lines == 0) {
      console.out << fmt::format("there are no lines in {}\n", path);
      return kRefused;
    }
    console.out << fmt::format("{}: {} lines in {} {}, {} to {}, the last at {}\n",
                               verdict.broken.empty() ? "whole" : "NOT WHOLE", verdict.lines, files.files.size(),
                               files.files.size() == 1 ? "file" : "files", verdict.first.n, verdict.last.n,
                               verdict.last_time);
    console.out << fmt::format("chain {}, head {} {}\n", verdict.chain, verdict.last.n, verdict.last.hash);
    if (verdict.newer > 0)
      console.out << fmt::format(
          "the last {} {} newer than the head in the store: the gateway is at work, or crashed before it kept the next "
          "head\n",
          verdict.newer, verdict.newer == 1 ? "line is" : "lines are");
    return exit_code(verdict);
  }

  int show(const Console& console) const {
    if (!key_.empty() && !record_.empty()) return complain(console, "give --key or --record, not both");
    if (key_.empty() && !(principal_.empty() && method_.empty() && path_.empty()))
      return complain(console, "--principal, --method and --path go with --key");
    for (const auto& [name, text] : {std::pair("--since", &since_), std::pair("--until", &until_)}) {
      if (!text->empty() && !parse_timestamp(*text))
        return complain(
            console, fmt::format("{}: expected a time as 2026-01-02 or 2026-01-02T03:04:05Z, got \"{}\"", name, *text));
    }
    if (!record_.empty() && (record_.size() < kRecordBeginningMin || record_.size() > kRecordDigits ||
                             !consists_of(record_, "0123456789abcdef")))
      return complain(console,
                      fmt::format("--record: expected a record's id of {} hex digits, or at least the first {}",
                                  kRecordDigits, kRecordBeginningMin));
    int exit_code = kDone;
    bool exact = true;
    std::optional<json::array> lines = log_.empty() ? ask(console, exit_code, exact) : read(console, exit_code);
    if (!lines) return exit_code;
    if (!record_.empty()) {
      if (const std::vector<std::string> named = records_of(*lines); named.size() > 1)
        return complain(console, fmt::format("--record: {} records begin with {}; give more digits, as in {}",
                                             named.size(), record_, named.front()));
    }
    std::reverse(lines->begin(), lines->end());
    if (as_json()) {
      console.out << json::serialize(json::object{{"lines", std::move(*lines)}}) << "\n";
      return kDone;
    }
    console.out << view_of_lines(*lines);
    if (!key_.empty() || !record_.empty()) console.out << audit_summary(*lines);
    if (!exact && !principal_.empty())
      console.out << "\nall accounts' lines with this key: to see one account's alone, give --method and --path too\n";
    return kDone;
  }

  // Newest first, page by page, from the gateway.
  std::optional<json::array> ask(const Console& console, int& exit_code, bool& exact) const {
    const auto gateway = client();
    if (!gateway) {
      exit_code = complain(console, gateway.fault().message);
      return std::nullopt;
    }
    std::string account = principal_;
    if (principal_ == "-" && (console.in == nullptr || !std::getline(*console.in, account) || account.empty())) {
      exit_code = complain(console, "--principal -: standard input is empty");
      return std::nullopt;
    }
    if (key_.empty())
      return pages([&](const json::value& before) { return gateway->get(target(before)); }, console, exit_code, exact);
    const auto find = [&](Times times, const std::vector<std::string>& records) {
      return pages(
          [&](const json::value& before) {
            return gateway->post("/api/audit/find", search(account, before, times, records));
          },
          console, exit_code, exact);
    };
    std::optional<json::array> lines = find(Times::all, {});
    const bool limited = !(since_.empty() && until_.empty());
    // An account's own records were asked for by their ids, operators' actions included.
    if (!lines || (exact && !limited)) return lines;
    return find(Times::given, exact ? std::vector<std::string>() : records_with_key(*lines, console));
  }

  // Operators' lines name a record and no key. Those of a key are about the records that its other lines name, also
  // those outside of the times that are asked for.
  static std::vector<std::string> records_with_key(const json::array& lines, const Console& console) {
    std::vector<std::string> records = records_of(lines);
    if (records.size() > kRecordsMax) {
      console.err << fmt::format(
          "{} records have this key: operators' actions are shown for {}; --principal, --method and --path tell them "
          "apart\n",
          records.size(), kRecordsMax);
      records.resize(kRecordsMax);
    }
    return records;
  }

  enum class Times { all, given };

  template <class Ask>
  std::optional<json::array> pages(const Ask& ask_page, const Console& console, int& exit_code, bool& exact) const {
    json::array all;
    for (json::value before = nullptr; all.size() < limit_;) {
      const auto answer = parsed(ask_page(before), console, exit_code);
      if (!answer) return std::nullopt;
      if (const json::array* const lines = member(*answer, "lines").if_array()) {
        for (const json::value& line : *lines) {
          if (all.size() < limit_) all.push_back(line);
        }
      }
      exact = member(*answer, "exact") != json::value(false);
      before = member(*answer, "next");
      if (before.is_null()) break;
    }
    return all;
  }

  std::string target(const json::value& before) const {
    std::string out = "/api/audit?events=all&limit=1000";
    if (!before.is_null()) out += fmt::format("&before={}", json::serialize(before));
    for (const auto& [name, value] :
         {std::pair("record", &record_), std::pair("since", &since_), std::pair("until", &until_)}) {
      if (!value->empty()) out += fmt::format("&{}={}", name, *value);
    }
    return out;
  }

  std::string search(const std::string& account, const json::value& before, Times times,
                     const std::vector<std::string>& records) const {
    json::object out{{"key", key_}};
    const std::string any_time;
    const bool all = times == Times::all;
    for (const auto& [name, value] :
         {std::pair("principal", &account), std::pair("method", &method_), std::pair("path", &path_),
          std::pair("since", all ? &any_time : &since_), std::pair("until", all ? &any_time : &until_)}) {
      if (!value->empty()) out[name] = *value;
    }
    if (!records.empty()) out["records"] = json::array(records.begin(), records.end());
    if (!before.is_null()) out["before"] = before;
    return json::serialize(out);
  }

  // The same from files, without a gateway: by the key as lines show it.
  std::optional<json::array> read(const Console& console, int& exit_code) const {
    if (!principal_.empty()) {
      exit_code = complain(console, "--principal needs a running gateway: leave out --log");
      return std::nullopt;
    }
    const auto instant = [](const std::string& text) {
      const auto at = parse_timestamp(text);
      return at ? timestamp(*at) : std::string();
    };
    const Result<AuditFiles> files = audit_files_of(log_);
    AuditQuery query{.limit = limit_, .since = instant(since_), .until = instant(until_), .look_bytes = UINT64_MAX};
    const auto read_lines = [&](const AuditQuery& wanted) {
      return files ? read_audit(*files, wanted) : Result<AuditPage>(files.fault());
    };
    if (!key_.empty()) {
      query.keys.push_back(key_);
      const Result<AuditPage> named = read_lines({.limit = limit_, .keys = query.keys, .look_bytes = UINT64_MAX});
      if (named) query.records = records_with_key(shown(*named), console); // else the next one says why
    }
    if (!record_.empty()) query.records.push_back(record_);
    const Result<AuditPage> page = read_lines(query);
    if (!page) {
      exit_code = complain(console, page.fault().message, kRefused);
      return std::nullopt;
    }
    for (const std::string& file : page->cut_off)
      console.err << fmt::format("left out: the last line of {}: it is being written, or a crash has cut it off\n",
                                 file);
    return shown(*page);
  }

  // As the gateway shows them.
  static json::array shown(const AuditPage& page) {
    json::array all;
    for (const std::string& line : page.lines) {
      json::error_code error;
      json::value one = json::parse(line, error);
      if (error || !one.is_object()) continue;
      json::object& object = one.get_object();
      for (const auto& [from, to] : {std::pair("time", "at"), std::pair("record", "id")}) {
        if (const json::value* const value = object.if_contains(from)) object[to] = json::value(*value);
        object.erase(from);
      }
      all.push_back(std::move(one));
    }
    return all;
  }

  CLI::App* show_;
  CLI::App* verify_;
  std::string key_, principal_, method_, path_, record_, since_, until_, log_, store_;
  std::vector<std::string> files_;
  std::size_t limit_ = 10'000;
  std::uint64_t from_ = 1;
};

} // namespace

std::unique_ptr<Subcommand> audit_command(CLI::App& app) { return std::make_unique<AuditCommand>(app); }

} // namespace oncekey
