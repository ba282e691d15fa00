// send: `oncekey send METHOD URL`, one call that is tried again until its answer is final, and done once in effect.
//
// The answer's body goes to standard output, everything else to standard error. With --journal the key survives the
// process: run the same command again after a crash, and it goes on under the same key.
//
// Exit codes: 0 succeeded, 1 refused for good, 2 wrong usage, 3 given up before there was a final answer, 4 the journal
// or the output failed (or the journal holds another request under this name).
#pragma once

#include "cli/keys.h"

#include <memory>

namespace CLI {
class App;
}

namespace oncekey {

// The constructor registers the subcommand. After parsing, `main` asks whether it was given, and runs it.
class SendCommand {
 public:
  explicit SendCommand(CLI::App& app);
  ~SendCommand();
  SendCommand(const SendCommand&) = delete;
  SendCommand& operator=(const SendCommand&) = delete;

  bool chosen() const;
  // The exit code.
  int run() const;
  int run(const Console& console) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace oncekey
