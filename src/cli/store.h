// oncekey store: what is done to a store itself, besides the records in it.
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
