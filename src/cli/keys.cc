#include "cli/keys.h"

#include "cli/admin_client.h"
#include "cli/exit_codes.h"
#include "cli/keys_view.h"

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <boost/json.hpp>

#include <cstdlib>
#include <fstream>
#include <iostream>

namespace oncekey {
namespace {

namespace json = boost::json;

// Shorter prefixes meet by chance too soon.
constexpr std::size_t kShortestPrefix = 8;
constexpr std::size_t kWholeId = 64;
constexpr std::size_t kLargestBody = 8u << 20; // the default of max_stored_body

const std::vector<std::string> kStates{"in_progress", "completed", "indeterminate", "abandoned"};

bool is_id(const std::string& text) {
  return text.size() >= kShortestPrefix && text.size() <= kWholeId &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// What the action means for the client who comes back with the key, in the words of the question.
std::string_view consequence(std::string_view action) {
  if (action == "release") return "you say that it did not happen: the next request with this key is a new first one";
  if (action == "rerun") return "the next retry executes it again, whatever happened the first time";
  return "you say that it happened: every retry gets the answer given here";
}

bool ask_on_the_terminal(const std::string& question) {
  std::cerr << question << " [y/N] " << std::flush;
  std::string answer;
  return std::getline(std::cin, answer) && (answer == "y" || answer == "Y" || answer == "yes");
}

Result<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string content(kLargestBody + 1, '\0');
  if (file) file.read(content.data(), static_cast<std::streamsize>(content.size()));
  if (!file.is_open() || file.bad()) return invalid(fmt::format("cannot read {}", path));
  content.resize(static_cast<std::size_t>(file.gcount()));
  if (content.size() > kLargestBody) return invalid(fmt::format("{} is longer than {} bytes", path, kLargestBody));
  return content;
}

Result<std::string> token_from(const std::string& token_file) {
  if (token_file.empty()) {
    const char* token = std::getenv("ONCEKEY_ADMIN_TOKEN");
    return std::string(token == nullptr ? "" : token);
  }
  auto token = read_file(token_file);
  if (!token) return token;
  return token->substr(0, token->find_first_of("\r\n"));
}

// The body of a good answer; otherwise says what went wrong and sets the exit code.
std::optional<std::string> body_or_complain(Result<AdminAnswer> answer, const Console& console, int& exit_code) {
  if (!answer) {
    console.err << "oncekey keys: " << answer.fault().message
                << "\nIs the gateway running? Say where its admin listener is with --admin HOST:PORT.\n";
    exit_code = kUnreachable;
    return std::nullopt;
  }
  if (answer->status == 200) return std::move(answer->body);
  console.err << "oncekey keys: " << view_of_error(answer->body) << "\n";
  if (answer->status == 401 || answer->status == 403)
    console.err << "The admin listener wants a token: set ONCEKEY_ADMIN_TOKEN or give --token-file FILE.\n";
  exit_code = kRefused;
  return std::nullopt;
}

// Prints a good answer, as it came or through `view`.
int print(const std::string& body, bool as_json, std::string (*view)(const json::value&), const Console& console) {
  if (as_json) {
    console.out << body << (body.ends_with('\n') ? "" : "\n");
    return kDone;
  }
  json::error_code error;
  const json::value parsed = json::parse(body, error);
  if (error) {
    console.err << "oncekey keys: what answered is not an Oncekey admin listener: its answer is not JSON\n";
    return kUnreachable;
  }
  console.out << view(parsed);
  return kDone;
}

} // namespace

struct KeysCommand::Impl {
  CLI::App* keys = nullptr;
  CLI::App* list = nullptr;
  CLI::App* show = nullptr;
  CLI::App* complete = nullptr;

  std::string admin = "127.0.0.1:8081";
  std::string token_file;
  bool as_json = false;
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
  it.keys->add_option("--admin", it.admin, "HOST:PORT of the gateway's admin listener")->capture_default_str();
  it.keys->add_option("--token-file", it.token_file, "file with the admin token (else ONCEKEY_ADMIN_TOKEN)");
  it.keys->add_flag("--json", it.as_json, "print the gateway's JSON instead of a table");

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

int KeysCommand::run() const {
  const bool somebody_there = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1;
  return run(Console{std::cout, std::cerr, somebody_there ? ask_on_the_terminal : nullptr});
}

int KeysCommand::run(const Console& console) const { return impl_->run(console); }

int KeysCommand::Impl::run(const Console& console) const {
  const auto address = parse_address(admin);
  const auto token = token_from(token_file);
  if (!address || !token) {
    console.err << "oncekey keys: " << (address ? token.fault().message : address.fault().message) << "\n";
    return kUsage;
  }
  const AdminClient client(*address, *token);
  if (list->parsed()) return run_list(client, console);
  if (!is_id(id)) {
    console.err << "oncekey keys: \"" << id << "\" is not an id: give 8 to 64 of its hexadecimal digits, as `oncekey "
                << "keys list` shows them\n";
    return kUsage;
  }
  if (show->parsed()) return run_show(client, console);
  return run_action(keys->get_subcommands().front()->get_name(), client, console);
}

int KeysCommand::Impl::run_list(const AdminClient& client, const Console& console) const {
  int exit_code = kDone;
  const std::string only = state.empty() ? "" : fmt::format("&state={}", state);
  const auto answer =
      body_or_complain(client.get(fmt::format("/api/keys?limit={}{}", limit, only)), console, exit_code);
  return answer ? print(*answer, as_json, view_of_list, console) : exit_code;
}

int KeysCommand::Impl::run_show(const AdminClient& client, const Console& console) const {
  int exit_code = kDone;
  const auto answer = body_or_complain(client.get("/api/keys/" + id), console, exit_code);
  return answer ? print(*answer, as_json, view_of_record, console) : exit_code;
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
    const auto record = body_or_complain(client.get("/api/keys/" + id), console, exit_code);
    if (!record) return exit_code;
    json::error_code error;
    const json::value parsed = json::parse(*record, error);
    if (error) return print(*record, false, view_of_record, console);
    console.err << view_of_record(parsed) << "\n";
    // What was shown is what is acted on, also if the prefix has come to mean two in the meantime.
    const json::value* found = parsed.is_object() ? parsed.as_object().if_contains("id") : nullptr;
    if (found != nullptr && found->is_string()) whole_id = found->as_string().c_str();
    if (!console.confirm(fmt::format("{}: {}. Go on?", action, consequence(action)))) {
      console.err << "nothing was changed\n";
      return kRefused;
    }
  }
  const auto answer =
      body_or_complain(client.post(fmt::format("/api/keys/{}/{}", whole_id, action), *request), console, exit_code);
  if (!answer) return exit_code;
  if (as_json) return print(*answer, true, nullptr, console);
  console.out << fmt::format("{}: done: {}\n", action, consequence(action));
  return kDone;
}

Result<std::string> KeysCommand::Impl::action_body(const std::string& action) const {
  json::object request{{"reason", reason}};
  if (reason.find_first_not_of(" \t") == std::string::npos) return invalid("--reason must not be empty");
  if (action == "complete") {
    auto content = body_file.empty() ? Result<std::string>(body) : read_file(body_file);
    if (!content) return content;
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
