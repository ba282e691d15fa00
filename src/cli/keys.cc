#include "cli/keys.h"

#include "cli/exit_codes.h"
#include "cli/keys_view.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <boost/json.hpp>

#include <ostream>

namespace oncekey {
namespace {

namespace json = boost::json;

const std::vector<std::string> kStates{"in_progress", "completed", "indeterminate", "abandoned"};

// What the action means for the client who comes back with the key, in the words of the question.
std::string_view consequence(std::string_view action) {
  if (action == "release") return "you say that it did not happen: the next request with this key is a new first one";
  if (action == "rerun") return "the next retry executes it again, whatever happened the first time";
  return "you say that it happened: every retry gets the answer given here";
}

} // namespace

struct KeysCommand::Impl {
  CLI::App* keys = nullptr;
  CLI::App* list = nullptr;
  CLI::App* show = nullptr;
  CLI::App* complete = nullptr;

  AdminFlags admin;
  std::string state;
  std::uint32_t limit = 100;
  std::string id;
  std::string reason;
  bool yes = false;
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::string body_file;

  void add_action(const std::string& name, const std::string& description) {
    CLI::App* action = keys->add_subcommand(name, description);
    action->add_option("ID", id, "the record's id, or at least 8 digits of its beginning")->required();
    action->add_option("--reason", reason, "why; goes into the audit line")->required();
    action->add_flag("--yes", yes, "do not ask");
    if (name == "complete") complete = action;
  }

  int run(const Console& console) const;
  int run_list(const AdminClient& client, const Console& console) const;
  int run_show(const AdminClient& client, const Console& console) const;
  int run_action(const std::string& action, const AdminClient& client, const Console& console) const;
  Result<std::string> action_body(const std::string& action) const;
};

KeysCommand::KeysCommand(CLI::App& app) : impl_(std::make_unique<Impl>()) {
  Impl& it = *impl_;
  it.keys = app.add_subcommand("keys", "look at single keys of a running gateway, and settle them by hand");
  it.keys->require_subcommand(1);
  it.keys->fallthrough();
  it.admin.add_to(*it.keys);

  it.list = it.keys->add_subcommand("list", "list keys");
  it.list->add_option("--state", it.state, "only those in this state")->check(CLI::IsMember(kStates));
  it.list->add_option("--limit", it.limit, "at most this many")->capture_default_str()->check(CLI::Range(1, 10'000));
  it.show = it.keys->add_subcommand("show", "show one key and the answer kept for it");
  it.show->add_option("ID", it.id, "the record's id, or at least 8 digits of its beginning")->required();

  it.add_action("release", "it did not happen: free the key for a new first request");
  it.add_action("complete", "it happened: keep this answer for the key");
  it.add_action("rerun", "let the next retry execute it");
  it.complete->add_option("--status", it.status, "of the answer")->capture_default_str()->check(CLI::Range(200, 599));
  it.complete->add_option("--content-type", it.content_type, "of the answer")->capture_default_str();
  CLI::Option* body = it.complete->add_option("--body", it.body, "of the answer");
  it.complete->add_option("--body-file", it.body_file, "file with the answer's body")->excludes(body);
}

KeysCommand::~KeysCommand() = default;

bool KeysCommand::chosen() const { return impl_->keys->parsed(); }

int KeysCommand::run() const { return run(standard_console()); }

int KeysCommand::run(const Console& console) const { return impl_->run(console); }

int KeysCommand::Impl::run(const Console& console) const {
  const auto client_made = admin.client();
  if (!client_made) {
    console.err << "oncekey keys: " << client_made.fault().message << "\n";
    return kUsage;
  }
  const AdminClient& client = *client_made;
  if (list->parsed()) return run_list(client, console);
  if (const Status whole = check_id(id, "keys"); !whole) {
    console.err << "oncekey keys: " << whole.fault().message << "\n";
    return kUsage;
  }
  if (show->parsed()) return run_show(client, console);
  return run_action(keys->get_subcommands().front()->get_name(), client, console);
}

int KeysCommand::Impl::run_list(const AdminClient& client, const Console& console) const {
  int exit_code = kDone;
  const std::string only = state.empty() ? "" : fmt::format("&state={}", state);
  const auto answer =
      body_or_complain(client.get(fmt::format("/api/keys?limit={}{}", limit, only)), "keys", console, exit_code);
  return answer ? print_answer(*answer, admin.as_json, view_of_list, "keys", console) : exit_code;
}

int KeysCommand::Impl::run_show(const AdminClient& client, const Console& console) const {
  int exit_code = kDone;
  const auto answer = body_or_complain(client.get("/api/keys/" + id), "keys", console, exit_code);
  return answer ? print_answer(*answer, admin.as_json, view_of_record, "keys", console) : exit_code;
}

int KeysCommand::Impl::run_action(const std::string& action, const AdminClient& client, const Console& console) const {
  const auto request = action_body(action);
  if (!request) {
    console.err << "oncekey keys: " << request.fault().message << "\n";
    return kUsage;
  }
  int exit_code = kDone;
  std::string whole_id = id;
  if (!yes) {
    if (console.confirm == nullptr) {
      console.err << "oncekey keys: nobody to ask here: repeat it with --yes to " << action << " the key\n";
      return kUsage;
    }
    const auto record = body_or_complain(client.get("/api/keys/" + id), "keys", console, exit_code);
    if (!record) return exit_code;
    json::error_code error;
    const json::value parsed = json::parse(*record, error);
    if (error) return print_answer(*record, false, view_of_record, "keys", console);
    console.err << view_of_record(parsed) << "\n";
    // What was shown is what is acted on, also if the prefix has come to mean two in the meantime.
    const json::value* found = parsed.is_object() ? parsed.as_object().if_contains("id") : nullptr;
    if (found != nullptr && found->is_string()) whole_id = found->as_string().c_str();
    if (!console.confirm(fmt::format("{}: {}. Go on?", action, consequence(action)))) {
      console.err << "nothing was changed\n";
      return kRefused;
    }
  }
  const auto answer = body_or_complain(client.post(fmt::format("/api/keys/{}/{}", whole_id, action), *request), "keys",
                                       console, exit_code);
  if (!answer) return exit_code;
  if (admin.as_json) return print_answer(*answer, true, nullptr, "keys", console);
  console.out << fmt::format("{}: done: {}\n", action, consequence(action));
  return kDone;
}

Result<std::string> KeysCommand::Impl::action_body(const std::string& action) const {
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
  // The parser checks UTF-8 and the serializer does not: what would not come back is not sent.
  std::string text = json::serialize(request);
  json::error_code error;
  json::parse(text, error);
  if (error) return invalid("the reason and the body must be UTF-8 text");
  return text;
}

} // namespace oncekey
