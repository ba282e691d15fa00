// oncekey store: commands about a store as a whole.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace oncekey {

class StoreCommand {
 public:
  explicit StoreCommand(CLI::App& app);
  bool chosen() const;
  int run() const;

 private:
  CLI::App* store_;
  CLI::App* migrate_;
  CLI::App* accept_loss_;
  std::string url_;
  bool yes_ = false;
};

} // namespace oncekey
