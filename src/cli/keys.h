// keys: `oncekey keys list|show|release|complete|rerun`, by which an operator inspects and settles single records.
//
// Everything goes through the admin listener of the running gateway, which owns the store and writes the audit line.
// Actions need a reason and a confirmation, because each of them overrules the policy. A key is named by its id, or by
// what the client sent: the gateway, which has the hash's secret, finds the id.
//
// Exit codes: 0 done, 1 refused or not found, 2 wrong usage, 3 the gateway cannot be reached.
#pragma once

#include "cli/admin_talk.h"

#include <memory>

namespace CLI {
class App;
}

namespace oncekey {

// The constructor registers the subcommand. After parsing, `main` asks whether it was given, and runs it.
class KeysCommand {
 public:
  explicit KeysCommand(CLI::App& app);
  ~KeysCommand();
  KeysCommand(const KeysCommand&) = delete;
  KeysCommand& operator=(const KeysCommand&) = delete;

  bool chosen() const;
  // The exit code. With the standard streams, and asking on the terminal if there is one.
  int run() const;
  int run(const Console& console) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace oncekey
