#include "cli/subcommand.h"

#include "base/url.h"
#include "cli/admin_talk.h"
#include "cli/exit_codes.h"
#include "cli/keys_view.h"
#include "config/suggestion.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <boost/json.hpp>

#include <array>
#include <istream>
#include <ostream>

namespace oncekey {
namespace {

namespace json = boost::json;

const std::vector<std::string> kStates{"waiting", "abandoned", "indeterminate", "in_progress", "completed"};
constexpr std::array<std::string_view, 5> kActions{"list", "show", "release", "complete", "rerun"};

// What the action means for the client when it retries.
std::string_view consequence(std::string_view action) {
  if (action == "release") {
    return "This records that the operation did NOT happen. The next request with this key runs as a new first "
           "request.";
  }
  if (action == "rerun") {
    return "This lets the next retry of the same request run, even if the operation may have happened already.";
  }
  return "This records that the operation happened. Every retry gets the answer given here.";
}

// CLI11 leaves empty brackets for a positional that is not shown.
class UsageWithoutHidden : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string usage = CLI::Formatter::make_usage(app, std::move(name));
    if (const std::size_t at = usage.find(" []"); at != std::string::npos) usage.erase(at, 3);
    return usage;
  }
};

} // namespace

class KeysCommand final : public Subcommand {
 public:
  explicit KeysCommand(CLI::App& app);
  int run(const Console& console) const override;

 private:
  CLI::App* list = nullptr;
  CLI::App* show = nullptr;
  CLI::App* complete = nullptr;

  AdminFlags admin;
  std::string unknown_action;
  std::string state;
  std::string older_than;
  std::string after;
  std::uint32_t limit = 100;
  std::string id;
  // How to find a key without its id.
  std::string key;
  std::string principal;
  std::vector<std::string> headers;
  std::string route;
  std::string method;
  std::string path;
  std::string reason;
  bool yes = false;
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::string body_file;

  void add_search(CLI::App& command) {
    CLI::Option* const by_key = command.add_option("--key", key, "find it by the key that the client sent");
    command
        .add_option(
            "--principal", principal,
            "with --key: the account, as the client sends it (the value of the Authorization header, or of what "
            "`scope` names);\n- reads it from standard input, so that it is not in the process list")
        ->needs(by_key);
    command
        .add_option("--header", headers,
                    "with --key: a further field that `scope` names, as in 'Stripe-Account: acct_1'")
        ->needs(by_key)
        ->allow_extra_args(false);
    command.add_option("--method", method, "with --key: of the request")->needs(by_key);
    command
        .add_option("--path", path, "with --key: of the request, where the policy tells keys apart by method and path")
        ->needs(by_key);
    command.add_option("--route", route, "of this route only (its name, as `keys show` has it)");
  }

  void add_id(CLI::App& command) {
    command.add_option("ID", id, "the record's id, or at least 8 digits of its beginning; or use --key");
    add_search(command);
  }

  void add_action(const std::string& name, const std::string& description) {
    CLI::App* action = command_->add_subcommand(name, description);
    add_id(*action);
    action->add_option("--reason", reason, "why; goes into the audit line")->required();
    action->add_flag("--yes", yes, "do not ask");
    if (name == "complete") complete = action;
  }

  int run_list(const AdminClient& client, const Console& console) const;
  int run_search(const AdminClient& client, const Console& console) const;
  int run_show(const std::string& of_id, const AdminClient& client, const Console& console) const;
  int run_action(const std::string& action, const std::string& of_id, const AdminClient& client,
                 const Console& console) const;
  Result<std::string> action_body(const std::string& action) const;
  Result<std::string> search_body(const Console& console) const;
  // The gateway's answer to the search. Otherwise prints what went wrong and sets the exit code.
  std::optional<std::string> search(const AdminClient& client, const Console& console, int& exit_code) const;
  std::optional<std::string> id_meant(const AdminClient& client, const Console& console, int& exit_code) const;
};

KeysCommand::KeysCommand(CLI::App& app)
    : Subcommand(app.add_subcommand(
          "keys", "Inspect the keys of a running gateway, and resolve those that wait for an operator")) {
  command_->require_subcommand(0, 1);
  command_->fallthrough();
  admin.add_to(*command_);
  command_->add_option("ACTION", unknown_action)->group(""); // so that a misspelled one can be named

  list = command_->add_subcommand("list", "list keys, newest first; those that wait for a person come first");
  list->add_option("--state", state,
                   "only those in this state; `waiting` is abandoned (the lease is over, no answer came) and\n"
                   "indeterminate (whether it was executed is not known)")
      ->check(CLI::IsMember(kStates));
  list->add_option("--older-than", older_than, "only those received longer ago, as in 10m");
  list->add_option("--limit", limit, "at most this many")->capture_default_str()->check(CLI::Range(1, 10'000));
  list->add_option("--after", after, "the next page: `next` of the last one");
  add_search(*list);
  show = command_->add_subcommand("show", "show one key and the answer kept for it");
  add_id(*show);

  add_action("release",
             "the operation did NOT happen: forget the key, so that the next request with it is a new first one");
  add_action("complete", "the operation happened: keep the answer given here, and replay it to every retry");
  add_action("rerun",
             "let the next retry run it again, even if it may have happened: the key keeps its request, and any other "
             "request is still refused");
  complete->add_option("--status", status, "of the answer")->capture_default_str()->check(CLI::Range(200, 599));
  complete->add_option("--content-type", content_type, "of the answer")->capture_default_str();
  CLI::Option* by_text = complete->add_option("--body", body, "of the answer");
  complete->add_option("--body-file", body_file, "file with the answer's body")->excludes(by_text);
  command_->formatter(std::make_shared<UsageWithoutHidden>());
}

int KeysCommand::run(const Console& console) const {
  const auto wrong_usage = [&](std::string_view message) {
    console.err << "oncekey keys: " << message << "\n";
    return kUsage;
  };
  if (!command_->get_subcommands().empty() && !unknown_action.empty())
    return wrong_usage(fmt::format("unexpected argument \"{}\"", unknown_action));
  if (command_->get_subcommands().empty()) {
    std::string what = "say what to do";
    if (!unknown_action.empty())
      what = fmt::format("unknown action \"{}\"{}", unknown_action, did_you_mean(unknown_action, kActions));
    return wrong_usage(what + "\nThe actions are list, show, release, complete and rerun: oncekey keys --help");
  }
  const auto client_made = admin.client();
  if (!client_made) return wrong_usage(client_made.fault().message);
  const AdminClient& client = *client_made;
  if (list->parsed()) {
    if (key.empty()) return run_list(client, console);
    if (!state.empty() || !older_than.empty() || !after.empty())
      return wrong_usage("--key finds one key: leave out --state, --older-than and --after");
    return run_search(client, console);
  }
  if (id.empty() == key.empty())
    return wrong_usage("give the ID of a key, as `oncekey keys list` shows it, or --key KEY: one of the two");
  if (const Status whole = check_id(id, "keys"); key.empty() && !whole)
    return wrong_usage(fmt::format("{}. To look for it by the client's key: --key {}", whole.fault().message, id));
  const std::string action = command_->get_subcommands().front()->get_name();
  if (!show->parsed() && !yes && console.confirm == nullptr)
    return wrong_usage(fmt::format("not a terminal: add --yes to confirm {}", action));
  int exit_code = kDone;
  const std::optional<std::string> meant = id_meant(client, console, exit_code);
  if (!meant) return exit_code;
  if (show->parsed()) return run_show(*meant, client, console);
  return run_action(action, *meant, client, console);
}

int KeysCommand::run_list(const AdminClient& client, const Console& console) const {
  int exit_code = kDone;
  std::string target = fmt::format("/api/keys?limit={}", limit);
  const auto add = [&](std::string_view name, const std::string& value) {
    if (!value.empty()) target += fmt::format("&{}={}", name, percent_encoded(value));
  };
  add("state", state);
  add("route", route);
  add("older_than", older_than);
  add("after", after);
  const auto answer = body_or_complain(client.get(target), "keys", console, exit_code);
  const auto view = [&](const json::value& listed) { return view_of_list(listed, console.width); };
  return answer ? print_answer(*answer, admin.as_json, view, "keys", console) : exit_code;
}

int KeysCommand::run_search(const AdminClient& client, const Console& console) const {
  int exit_code = kDone;
  const auto answer = search(client, console, exit_code);
  const auto view = [&](const json::value& listed) { return view_of_list(listed, console.width); };
  return answer ? print_answer(*answer, admin.as_json, view, "keys", console) : exit_code;
}

std::optional<std::string> KeysCommand::search(const AdminClient& client, const Console& console,
                                               int& exit_code) const {
  const Result<std::string> request = search_body(console);
  if (!request) {
    console.err << "oncekey keys: " << request.fault().message << "\n";
    exit_code = kUsage;
    return std::nullopt;
  }
  return body_or_complain(client.post("/api/keys/find", *request), "keys", console, exit_code);
}

// The id that was given, or that of the one record that the search finds.
std::optional<std::string> KeysCommand::id_meant(const AdminClient& client, const Console& console,
                                                 int& exit_code) const {
  if (key.empty()) return id;
  const std::optional<std::string> answer = search(client, console, exit_code);
  if (!answer) return std::nullopt;
  json::error_code error;
  const json::value parsed = json::parse(*answer, error);
  const json::value* const listed = error || !parsed.is_object() ? nullptr : parsed.as_object().if_contains("keys");
  const json::array* const found = listed == nullptr ? nullptr : listed->if_array();
  if (found == nullptr) {
    exit_code = print_answer(*answer, false, view_of_record, "keys", console);
    return std::nullopt;
  }
  exit_code = kRefused;
  if (found->size() != 1) {
    console.err << "oncekey keys: "
                << (found->empty() ? "no key was found; it may have expired or been released"
                                   : "several keys were found: give the ID of one of them, or --principal and --path")
                << "\n"
                << view_of_list(parsed, console.width);
    return std::nullopt;
  }
  const json::value* const whole = parsed.as_object().if_contains("whole");
  if (!show->parsed() && principal.empty() && whole != nullptr && whole->is_bool() && !whole->as_bool()) {
    console.err << "oncekey keys: one key was found, but not all keys were looked at: give its ID, or --principal\n"
                << view_of_list(parsed, console.width);
    return std::nullopt;
  }
  const json::value* const its_id = found->front().is_object() ? found->front().as_object().if_contains("id") : nullptr;
  if (its_id == nullptr || !its_id->is_string()) return std::nullopt;
  exit_code = kDone;
  return std::string(its_id->as_string().c_str());
}

int KeysCommand::run_show(const std::string& of_id, const AdminClient& client, const Console& console) const {
  int exit_code = kDone;
  const auto answer = body_or_complain(client.get("/api/keys/" + of_id), "keys", console, exit_code);
  return answer ? print_answer(*answer, admin.as_json, view_of_record, "keys", console) : exit_code;
}

int KeysCommand::run_action(const std::string& action, const std::string& of_id, const AdminClient& client,
                            const Console& console) const {
  const auto request = action_body(action);
  if (!request) {
    console.err << "oncekey keys: " << request.fault().message << "\n";
    return kUsage;
  }
  int exit_code = kDone;
  std::string whole_id = of_id;
  if (!yes) {
    const auto confirmed =
        show_and_confirm(client.get("/api/keys/" + of_id), view_of_record,
                         fmt::format("{}: {} Go on?", action, consequence(action)), "keys", console, exit_code);
    if (!confirmed) return exit_code;
    whole_id = *confirmed;
  }
  const auto answer = body_or_complain(client.post(fmt::format("/api/keys/{}/{}", whole_id, action), *request), "keys",
                                       console, exit_code);
  if (!answer) return exit_code;
  if (admin.as_json) return print_answer(*answer, true, nullptr, "keys", console);
  console.out << fmt::format("{}: done. {}\n", action, consequence(action));
  return kDone;
}

Result<std::string> KeysCommand::search_body(const Console& console) const {
  json::object request{{"key", key}};
  std::string account = principal;
  if (principal == "-" && (console.in == nullptr || !std::getline(*console.in, account) || account.empty()))
    return invalid("--principal -: standard input is empty");
  if (!account.empty() && account.back() == '\r') account.pop_back();
  const auto add = [&](std::string_view name, const std::string& value) {
    if (!value.empty()) request[{name.data(), name.size()}] = value;
  };
  add("principal", account);
  add("route", route);
  add("method", method);
  add("path", path);
  if (list->count("--limit") != 0) request["limit"] = limit;
  json::array fields;
  for (const std::string& header : headers) {
    const std::size_t colon = header.find(':');
    if (colon == std::string::npos || colon == 0)
      return invalid(fmt::format("--header: expected \"Name: value\", got \"{}\"", header));
    const std::size_t value = header.find_first_not_of(" \t", colon + 1);
    fields.push_back(
        json::array{header.substr(0, colon), value == std::string::npos ? std::string() : header.substr(value)});
  }
  if (!fields.empty()) request["headers"] = std::move(fields);
  std::string text = json::serialize(request);
  json::error_code error;
  json::parse(text, error);
  if (error) return invalid("what to look for must be UTF-8 text");
  return text;
}

Result<std::string> KeysCommand::action_body(const std::string& action) const {
  json::object request{{"reason", reason}};
  if (reason.find_first_not_of(" \t") == std::string::npos) return invalid("--reason must not be empty");
  if (action == "complete") {
    auto content = body_file.empty() ? Result<std::string>(body) : read_small_file(body_file);
    if (!content) return content;
    if (!content->empty() && (status == 204 || status == 205 || status == 304)) {
      return invalid(
          fmt::format("an answer with status {} has no body; leave the body out or give another status", status));
    }
    request["status"] = status;
    request["content_type"] = content_type;
    request["body"] = std::move(content).value();
  }
  // Boost.JSON's serializer does not check UTF-8, and its parser does: the text is parsed again before it is sent.
  std::string text = json::serialize(request);
  json::error_code error;
  json::parse(text, error);
  if (error) return invalid("the reason and the body must be UTF-8 text");
  return text;
}

std::unique_ptr<Subcommand> keys_command(CLI::App& app) { return std::make_unique<KeysCommand>(app); }

} // namespace oncekey
