// admin_talk: shared by the commands that talk to the admin listener of a running gateway.
#pragma once

#include "cli/admin_client.h"

#include <oncekey/result.h>

#include <boost/json/value.hpp>

#include <cstddef>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace oncekey {

// The streams that a command reads and writes, so that tests can pass their own. `confirm` asks a yes-or-no question;
// it is null without a terminal, as in a script.
struct Console {
  std::ostream& out;
  std::ostream& err;
  bool (*confirm)(const std::string& question);
  std::size_t width = 0;      // of the terminal; 0 if the output goes elsewhere: then nothing is cut
  std::istream* in = nullptr; // for --principal -
};

// The standard streams, and the terminal if there is one.
Console standard_console();

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

// No larger than an answer a gateway keeps.
Result<std::string> read_small_file(const std::string& path);

} // namespace oncekey
