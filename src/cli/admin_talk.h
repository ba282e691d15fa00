// admin_talk: shared by the commands that talk to the admin listener of a running gateway.
#pragma once

#include "cli/admin_client.h"
#include "cli/subcommand.h"

#include <oncekey/result.h>

#include <boost/json/value.hpp>

#include <cstddef>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>

namespace oncekey {

// --admin, --admin-ca, --config, --token-file and --json. The token is looked for in this order: --token-file,
// --config, ONCEKEY_ADMIN_TOKEN, and where a gateway started without a configuration keeps it: in ./oncekey-data and in
// the user's state folder. So a command beside a running `oncekey serve` needs no flag.
struct AdminFlags {
  std::string admin;
  std::string admin_ca;
  std::string config;
  std::string token_file;
  bool as_json = false;

  void add_to(CLI::App& command);
  Result<AdminClient> client() const;
};

// An id may be shortened to its first eight digits. `command` is the command whose list shows ids.
Status check_id(const std::string& id, std::string_view command);

// The body of a good answer. Otherwise prints what went wrong and sets the exit code.
std::optional<std::string> body_or_complain(Result<AdminAnswer> answer, std::string_view command,
                                            const Console& console, int& exit_code);

// Prints a good answer, as it came or through `view`. Returns the exit code.
int print_answer(const std::string& body, bool as_json,
                 const std::function<std::string(const boost::json::value&)>& view, std::string_view command,
                 const Console& console);

// Shows what an action is about to change, as the answer has it, and asks. Its whole id: what was shown is what is
// acted on, also if a prefix has come to mean two in the meantime. Nothing, and the exit code, if there is no such
// thing or the operator said no.
std::optional<std::string> show_and_confirm(Result<AdminAnswer> answer,
                                            const std::function<std::string(const boost::json::value&)>& view,
                                            const std::string& question, std::string_view command,
                                            const Console& console, int& exit_code);

// No larger than an answer a gateway keeps.
Result<std::string> read_small_file(const std::string& path);

} // namespace oncekey
