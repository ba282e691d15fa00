// admin_talk: shared by the commands that talk to the admin listener of a running gateway.
#pragma once

#include "base/url.h"
#include "cli/subcommand.h"

#include <boost/json/value.hpp>

#include <functional>

namespace oncekey {

struct AdminAnswer {
  int status = 0;
  std::string body;
  std::string token_from{}; // of the client that asked
};

struct AdminToken {
  std::string text;
  std::string from; // where it was found, for messages; empty if there is none
};

// Knows where the listener is and the token it wants. Blocking; one connection a call.
class AdminClient {
 public:
  // The URL's target is not used. An empty token is not sent. `ca_file`: PEM certificates to trust for https, the
  // system's if empty.
  AdminClient(Url url, AdminToken token, std::string ca_file)
      : url_(std::move(url)), token_(std::move(token)), ca_file_(std::move(ca_file)) {}

  // Before the first call the server is asked, without the token, whether it is an admin listener: a token must not go
  // to another server because of a wrong port.
  //
  // A fault means that no complete answer came: no process listens there, or it did not answer in time. Whether the
  // action of a POST happened is then unknown. `invalid`: another server listens there, and the token was not sent.
  Result<AdminAnswer> get(std::string_view target) const { return send("GET", target, "", SendToken::yes); }
  Result<AdminAnswer> post(std::string_view target, std::string_view json) const {
    return send("POST", target, json, SendToken::yes);
  }
  // http://HOST:PORT
  std::string origin() const { return url_.origin(); }

 private:
  enum class SendToken { no, yes };
  Result<AdminAnswer> send(std::string_view method, std::string_view target, std::string_view json,
                           SendToken send_token) const;
  Status identify() const;

  Url url_;
  AdminToken token_;
  std::string ca_file_;
  mutable bool identified_ = false;
};

// An answer of the API as text for people.
using View = std::function<std::string(const boost::json::value&)>;

// A command whose answers are those of the admin API.
//
// It has --admin, --admin-ca, --config, --token-file and --json. The token is looked for in this order: --token-file,
// --config, ONCEKEY_ADMIN_TOKEN, and where a gateway started without a configuration keeps it: in the folder of the
// store that the command was given, in ./oncekey-data and in the user's state folder. So a command beside a running
// `oncekey serve` needs no flag.
class AdminCommand : public Subcommand {
 protected:
  AdminCommand(CLI::App& app, const std::string& name, const std::string& description);
  // Gives a subcommand that changes something --reason and --yes.
  CLI::App* acting(CLI::App* subcommand);

  // `store`: the URL that the command was given; empty if it was given none.
  Result<AdminClient> client(const std::string& store = "") const;
  // The name of the subcommand that was chosen.
  std::string action() const { return command_->get_subcommands().front()->get_name(); }
  // An id may be shortened to its first eight digits.
  Status check_id(const std::string& id) const;
  Status check_reason() const;
  // Whether there is a person to ask, or nothing is to be asked.
  Status check_confirmable(const Console& console) const;

  // Prints a good answer, as it came or through `view`, and otherwise what went wrong. Returns the exit code.
  int print(const Result<AdminAnswer>& answer, const View& view, const Console& console) const;
  // The body of a good answer. Otherwise prints what went wrong and sets the exit code.
  std::optional<boost::json::value> parsed(const Result<AdminAnswer>& answer, const Console& console,
                                           int& exit_code) const;

  struct Act {
    std::string question;
    std::string done; // what is said after it
    std::function<Result<AdminAnswer>(const std::string& id)> show;
    std::function<Result<AdminAnswer>(const std::string& id)> act;
  };
  // Shows what the action is about to change, asks, and acts on the whole id that was shown: what was shown is what is
  // acted on, also if a prefix has come to mean two in the meantime. Returns the exit code.
  int act_on(std::string id, const Act& act, const View& view, const Console& console) const;

  // What --config says; the defaults without it.
  Result<Config> settings() const;
  const std::string& config_file() const { return config_; }
  bool as_json() const { return as_json_; }

  std::string reason_;
  bool yes_ = false;

 private:
  std::optional<std::string> body_of(const Result<AdminAnswer>& answer, const Console& console, int& exit_code) const;

  std::string admin_;
  std::string admin_ca_;
  std::string config_;
  std::string token_file_;
  bool as_json_ = false;
};

// A client that has no token: for what the listener tells everyone. `admin` is HOST:PORT or a URL; if it is empty, the
// address of the configuration file counts, and without one the usual address.
Result<AdminClient> anonymous_admin_client(const std::string& admin, const std::string& ca_file,
                                           const std::string& config_file);

// No larger than an answer a gateway keeps.
Result<std::string> read_small_file(const std::string& path);

} // namespace oncekey
