// subcommand: the commands of the binary, as in `oncekey keys`, and where they speak.
#pragma once

#include "config/load.h"

#include <oncekey/result.h>

#include <CLI/CLI.hpp>

#include <cstddef>
#include <istream>
#include <memory>

namespace oncekey {

class Database;

// The exit codes of the commands for operators.
inline constexpr int kDone = 0;
inline constexpr int kRefused = 1;
inline constexpr int kUsage = 2;
inline constexpr int kUnreachable = 3;

// What is said where, so that tests can listen in. `confirm` asks a yes-or-no question; null when there is no terminal
// to ask on, as in a script.
struct Console {
  std::ostream& out;
  std::ostream& err;
  bool (*confirm)(const std::string& question) = nullptr;
  std::size_t width = 0;      // of the terminal; 0 if it goes elsewhere, and nothing is cut
  std::istream* in = nullptr; // for --principal -
};

// The columns of the terminal behind a descriptor; 0 if there is none.
std::size_t terminal_width(int descriptor);
// The standard streams, and the terminal if there is one.
Console standard_console();

// Registers itself with the application when made; `main` asks after parsing whether it was chosen, and runs it.
class Subcommand {
 public:
  virtual ~Subcommand() = default;
  Subcommand(const Subcommand&) = delete;
  Subcommand& operator=(const Subcommand&) = delete;

  bool chosen() const { return command_->parsed(); }
  // The exit code.
  virtual int run(const Console& console) const = 0;

 protected:
  Subcommand(CLI::App& app, const std::string& name, const std::string& description)
      : command_(app.add_subcommand(name, description)) {}

  // Says what is wrong, with the name of the command in front. Returns the exit code.
  int complain(const Console& console, std::string_view message, int exit_code = kUsage) const;
  // The exit code tells an argument that cannot be used from anything else.
  int complain(const Console& console, const Fault& fault, int otherwise = kRefused) const {
    return complain(console, fault.message, fault.kind == FaultKind::invalid ? kUsage : otherwise);
  }

  // An option whose value is called `type` in the help.
  template <class T>
  CLI::Option* option(const std::string& name, T& value, const std::string& type, const std::string& help) {
    return command_->add_option(name, value, help)->type_name(type);
  }

  CLI::App* const command_;
};

// `oncekey keys list|show|release|complete|rerun|hold`: the operator's hand on single records.
//
// Everything goes through the admin listener of the running gateway, which owns the store and writes the audit line.
// Actions want a reason and a confirmation, because each of them overrules what the policy would do. A key is named by
// its id, or by what the client sent: the gateway, which has the hash's secret, finds the id.
//
// Exit codes: 0 done, 1 refused or not found, 2 wrong usage, 3 the gateway cannot be reached.
std::unique_ptr<Subcommand> keys_command(CLI::App& app);

// `oncekey jobs list|show|retry|drop`: the jobs of a gateway, through its admin listener as above, or of the library's
// database (--store).
std::unique_ptr<Subcommand> jobs_command(CLI::App& app);

// `oncekey audit show|verify`: reads the audit log of a gateway, through its admin listener or from its files, and
// proves that no line was changed or removed.
//
// Exit codes: 0 done, 1 the log is broken, or refused, 2 wrong usage, 3 the gateway cannot be reached.
std::unique_ptr<Subcommand> audit_command(CLI::App& app);

// `oncekey console`: a link that opens the console of a running gateway in a browser, with a login code in it.
std::unique_ptr<Subcommand> console_command(CLI::App& app);

// `oncekey send METHOD URL`: one call that is tried again until its answer is final, and done once in effect.
//
// The answer's body goes to standard output, everything else to standard error. With --journal the key survives the
// process: run the same command again after a crash, and it goes on under the same key.
//
// Exit codes: 0 succeeded, 1 refused for good, 2 wrong usage, 3 given up before there was a final answer, 4 the journal
// or the output failed (or the journal holds another request under this name).
std::unique_ptr<Subcommand> send_command(CLI::App& app);

// `oncekey store migrate|accept-loss`: what is done to a store itself, besides the records in it.
std::unique_ptr<Subcommand> store_command(CLI::App& app);

// `oncekey work`: the workers of the library of atomic phases, as a process of their own.
std::unique_ptr<Subcommand> work_command(CLI::App& app);

// `oncekey schema print`: the tables of that library.
std::unique_ptr<Subcommand> schema_command(CLI::App& app);

// `oncekey health`: whether a running gateway is ready, for health checks of containers, which have no curl.
//
// Asks the admin listener for /readyz, or for /livez with --live, without a token. Exit codes: 0 ready (or alive), 1
// not ready, 2 wrong usage, 3 the gateway cannot be reached.
std::unique_ptr<Subcommand> health_command(CLI::App& app);

// `oncekey completion bash|zsh|fish`: see completion.h.
std::unique_ptr<Subcommand> completion_command(CLI::App& app);

// The database of that library, opened, with its tables made. A file that does not exist is a fault: no database is
// created.
Result<std::unique_ptr<Database>> open_library_database(const std::string& url);

enum class Output { text, json };

// `oncekey check FILE`: whether `oncekey serve --config FILE` would start, and what it would do.
//
// It reads the file and the files it names (certificates, keys, accounts, key sets) and looks at the store's folder. It
// does not bind, lock or connect, and makes nothing: that is `oncekey doctor`. 0 for a file that can be used, 1 with
// every mistake on the console's error stream.
int run_check(const std::string& path, Output output, const Console& console);

// `oncekey doctor`: tries out what `oncekey check` cannot know from files.
//
// It binds the listeners and lets them go, tries the lock of an embedded store, connects to the servers of a shared
// one, to the upstream and to the destinations of jobs, and looks at the clock and the limits of the machine. It
// changes nothing that lasts, and sends a request to no server but the gateway's own admin listener.
//
// Prints one line for each diagnosis. Returns 0, or 1 if there is a problem; a warning is not a problem.
int run_doctor(const ServeFlags& flags, Output output, const Console& console);

// `oncekey init [FILE]`: writes a configuration to begin with, with a comment on each setting, to a file that does not
// exist yet; "-" is standard output. 0, or 1 with the reason.
int run_init(const std::string& file, const std::string& upstream, const Console& console);

// `oncekey serve`: the gateway as a process, until a signal ends it. 0 after a clean drain, 1 when it could not start
// or was cut short. `read` is what the flags and the file they name say, without findings; SIGHUP reads them again.
int run_serve(const ServeFlags& flags, ReadConfig read);

} // namespace oncekey
