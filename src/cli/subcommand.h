// subcommand: one command of the binary, as in `oncekey keys`, and where it speaks.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <memory>
#include <string>

namespace CLI {
class App;
}

namespace oncekey {

// What is said where, so that tests can listen in. `confirm` asks a yes-or-no question; null when there is no terminal
// to ask on, as in a script.
struct Console {
  std::ostream& out;
  std::ostream& err;
  bool (*confirm)(const std::string& question);
  std::size_t width = 0;      // of the terminal; 0 if it goes elsewhere, and nothing is cut
  std::istream* in = nullptr; // for --principal -
};

// The standard streams, and the terminal if there is one.
Console standard_console();

// Registers itself with the application when made; `main` asks after parsing whether it was chosen, and runs it.
class Subcommand {
 public:
  virtual ~Subcommand() = default;
  Subcommand(const Subcommand&) = delete;
  Subcommand& operator=(const Subcommand&) = delete;

  bool chosen() const;
  // The exit code.
  virtual int run(const Console& console) const = 0;

 protected:
  explicit Subcommand(CLI::App* command) : command_(command) {}
  CLI::App* const command_;
};

// `oncekey keys list|show|release|complete|rerun`: the operator's hand on single records.
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

} // namespace oncekey
