#include "admin/action_texts.h"
#include "cli/admin_talk.h"
#include "cli/views.h"

#include <fmt/format.h>

namespace oncekey {
namespace {

namespace json = boost::json;

const std::vector<std::string> kStates{"waiting", "abandoned", "indeterminate", "in_progress", "completed"};

// Boost.JSON's serializer does not check UTF-8, and its parser does: the text is parsed again before it is sent.
Result<std::string> utf8_text(const json::object& request, const char* otherwise) {
  std::string text = json::serialize(request);
  json::error_code error;
  json::parse(text, error);
  if (error) return invalid(otherwise);
  return text;
}

class KeysCommand final : public AdminCommand {
 public:
  explicit KeysCommand(CLI::App& app)
      : AdminCommand(app, "keys",
                     "Inspect the keys of a running gateway, and resolve those that wait for an operator") {
    command_->require_subcommand(1);

    list_ = command_->add_subcommand("list", "list keys, newest first; those that wait for a person come first");
    list_
        ->add_option("--state", state_,
                     "only those in this state; `waiting` is abandoned (the lease is over, no answer came) and\n"
                     "indeterminate (whether it was executed is not known)")
        ->check(CLI::IsMember(kStates));
    list_->add_option("--older-than", older_than_, "only those received longer ago, as in 10m");
    list_->add_option("--newer-than", newer_than_, "only those received since then, as in 1h");
    list_->add_option("--limit", limit_, "at most this many")->capture_default_str()->check(CLI::Range(1, 10'000));
    list_->add_option("--after", after_, "the next page: `next` of the last one");
    add_search(*list_);
    show_ = add_id(command_->add_subcommand("show", "show one key, its life, and the answer kept for it"));
    show_->add_flag("--no-body", no_body_, "without the answer's body, which the read-only token cannot see");

    add_action("release",
               "the operation did NOT happen: forget the key, so that the next request with it is a new first one");
    CLI::App* const complete =
        add_action("complete", "the operation happened: keep the answer given here, and replay it to every retry");
    add_action(
        "rerun",
        "let the next retry run it again, even if it may have happened: the key keeps its request, and any other "
        "request is still refused");
    add_action("hold", "the outcome is unknown: let no retry run it until an operator has decided");
    complete->add_option("--status", status_, "of the answer")->capture_default_str()->check(CLI::Range(200, 599));
    complete->add_option("--content-type", content_type_, "of the answer")->capture_default_str();
    CLI::Option* const by_text = complete->add_option("--body", body_, "of the answer");
    complete->add_option("--body-file", body_file_, "file with the answer's body")->excludes(by_text);
  }

  int run(const Console& console) const override {
    const auto gateway = client();
    if (!gateway) return complain(console, gateway.fault().message);
    if (list_->parsed()) {
      const bool searches = !key_.empty() || !principal_.empty();
      if (searches && !after_.empty())
        return complain(console, "--key and --principal have no pages: leave out --after");
      const Result<std::string> request = searches ? search_body(console) : std::string();
      if (!request) return complain(console, request.fault().message);
      const auto view = [&](const json::value& listed) { return view_of_list(listed, console.width); };
      return print(searches ? gateway->post(kFind, *request) : gateway->get(list_target()), view, console);
    }
    if (id_.empty() == key_.empty())
      return complain(console, "give the ID of a key, as `oncekey keys list` shows it, or --key KEY: one of the two");
    if (const Status whole = check_id(id_); key_.empty() && !whole)
      return complain(console,
                      fmt::format("{}. To look for it by the client's key: --key {}", whole.fault().message, id_));
    if (const Status confirmable = check_confirmable(console); !show_->parsed() && !confirmable)
      return complain(console, confirmable.fault().message);
    int exit_code = kDone;
    const std::optional<std::string> meant = id_meant(*gateway, console, exit_code);
    if (!meant) return exit_code;
    const auto show = [&](const std::string& id) {
      return gateway->get(fmt::format("/api/keys/{}{}", id, no_body_ ? "" : "?body=1"));
    };
    if (show_->parsed()) return print(show(*meant), view_of_record, console);
    const auto request = action_body();
    if (!request) return complain(console, request.fault().message);
    const auto act = [&](const std::string& id) {
      return gateway->post(fmt::format("/api/keys/{}/{}", id, action()), *request);
    };
    const ActionText& text = text_of(key_actions(), action());
    return act_on(*meant,
                  {fmt::format("{}: {}\n{}\nGo on?", action(), text.meaning, text.risk),
                   fmt::format("{}: done. {}", action(), text.meaning), show, act},
                  view_of_record, console);
  }

 private:
  static constexpr std::string_view kFind = "/api/keys/find";
  using Given = std::pair<const char*, const std::string*>; // what was given for a name

  void add_search(CLI::App& command) {
    CLI::Option* const by_key = command.add_option("--key", key_, "find it by the key that the client sent");
    CLI::Option* const by_account = command.add_option(
        "--principal", principal_,
        fmt::format("{}the account, as the client sends it (the value of the Authorization header, or of what `scope` "
                    "names);\n- reads it from standard input, so that it is not in the process list",
                    &command == list_ ? "" : "with --key: "));
    // A list may be that of an account; one key needs its key.
    if (&command != list_) by_account->needs(by_key);
    command
        .add_option("--header", headers_,
                    "with --key: a further field that `scope` names, as in 'Stripe-Account: acct_1'")
        ->needs(by_key)
        ->allow_extra_args(false);
    command.add_option("--method", method_, "with --key: of the request")->needs(by_key);
    command
        .add_option("--path", path_, "with --key: of the request, where the policy tells keys apart by method and path")
        ->needs(by_key);
    command.add_option("--route", route_, "of this route only (its name, as `keys show` has it)");
  }

  CLI::App* add_id(CLI::App* command) {
    command->add_option("ID", id_, "the record's id, or at least 8 digits of its beginning; or use --key");
    add_search(*command);
    return command;
  }

  CLI::App* add_action(const std::string& name, const std::string& description) {
    return acting(add_id(command_->add_subcommand(name, description)));
  }

  std::string list_target() const {
    std::string target = fmt::format("/api/keys?limit={}", limit_);
    for (const auto& [name, value] : {Given("state", &state_),
                                      {"route", &route_},
                                      {"older_than", &older_than_},
                                      {"newer_than", &newer_than_},
                                      {"after", &after_}}) {
      if (!value->empty()) target += fmt::format("&{}={}", name, percent_encoded(*value));
    }
    return target;
  }

  // The id that was given, or that of the one record that the search finds. Otherwise prints what went wrong and sets
  // the exit code.
  std::optional<std::string> id_meant(const AdminClient& gateway, const Console& console, int& exit_code) const {
    if (key_.empty()) return id_;
    const Result<std::string> request = search_body(console);
    if (!request) {
      exit_code = complain(console, request.fault().message);
      return std::nullopt;
    }
    const auto answer = parsed(gateway.post(kFind, *request), console, exit_code);
    if (!answer) return std::nullopt;
    const json::array* const found = member(*answer, "keys").if_array();
    if (found == nullptr) {
      console.out << view_of_record(*answer);
      return std::nullopt;
    }
    const bool whole = member(*answer, "whole") != json::value(false);
    if (found->size() != 1 || (!show_->parsed() && principal_.empty() && !whole)) {
      exit_code = complain(console,
                           found->empty() ? "no key was found; it may have expired or been released"
                           : found->size() != 1
                               ? "several keys were found: give the ID of one of them, or --principal and --path"
                               : "one key was found, but not all keys were looked at: give its ID, or --principal",
                           kRefused);
      console.err << view_of_list(*answer, console.width);
      return std::nullopt;
    }
    if (const json::string* const its_id = member(found->front(), "id").if_string()) return its_id->c_str();
    exit_code = kRefused;
    return std::nullopt;
  }

  Result<std::string> search_body(const Console& console) const {
    std::string account = principal_;
    if (principal_ == "-" && (console.in == nullptr || !std::getline(*console.in, account) || account.empty()))
      return invalid("--principal -: standard input is empty");
    if (!account.empty() && account.back() == '\r') account.pop_back();
    json::object request;
    for (const auto& [name, value] : {Given("key", &key_),
                                      {"principal", &account},
                                      {"route", &route_},
                                      {"method", &method_},
                                      {"path", &path_},
                                      {"state", &state_},
                                      {"older_than", &older_than_},
                                      {"newer_than", &newer_than_}}) {
      if (!value->empty()) request[name] = *value;
    }
    if (list_->count("--limit") != 0) request["limit"] = limit_;
    json::array fields;
    for (const std::string& header : headers_) {
      const std::size_t colon = header.find(':');
      if (colon == std::string::npos || colon == 0)
        return invalid(fmt::format("--header: expected \"Name: value\", got \"{}\"", header));
      const std::size_t value = std::min(header.find_first_not_of(" \t", colon + 1), header.size());
      fields.push_back(json::array{header.substr(0, colon), header.substr(value)});
    }
    if (!fields.empty()) request["headers"] = std::move(fields);
    return utf8_text(request, "what to look for must be UTF-8 text");
  }

  Result<std::string> action_body() const {
    if (const Status given = check_reason(); !given) return given.fault();
    json::object request{{"reason", reason_}};
    if (action() == "complete") {
      auto content = body_file_.empty() ? Result<std::string>(body_) : read_small_file(body_file_);
      if (!content) return content;
      if (!content->empty() && (status_ == 204 || status_ == 205 || status_ == 304)) {
        return invalid(
            fmt::format("an answer with status {} has no body; leave the body out or give another status", status_));
      }
      request["status"] = status_;
      request["content_type"] = content_type_;
      request["body"] = std::move(content).value();
    }
    return utf8_text(request, "the reason and the body must be UTF-8 text");
  }

  CLI::App* list_;
  CLI::App* show_;
  bool no_body_ = false;
  std::string state_;
  std::string older_than_;
  std::string newer_than_;
  std::string after_;
  std::uint32_t limit_ = 100;
  std::string id_;
  // How to find a key without its id.
  std::string key_;
  std::string principal_;
  std::vector<std::string> headers_;
  std::string route_;
  std::string method_;
  std::string path_;
  int status_ = 200;
  std::string content_type_ = "application/json";
  std::string body_;
  std::string body_file_;
};

} // namespace

std::unique_ptr<Subcommand> keys_command(CLI::App& app) { return std::make_unique<KeysCommand>(app); }

} // namespace oncekey
