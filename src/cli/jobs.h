// jobs: `oncekey jobs list|show|retry|drop`, the jobs of a gateway and what an operator decides about them.
//
// Goes through the admin listener like `oncekey keys`, with the same exit codes.
#pragma once

#include "cli/admin_talk.h"

#include <memory>

namespace oncekey {

class JobsCommand {
 public:
  explicit JobsCommand(CLI::App& app);
  ~JobsCommand();
  JobsCommand(const JobsCommand&) = delete;
  JobsCommand& operator=(const JobsCommand&) = delete;

  bool chosen() const;
  int run() const;
  int run(const Console& console) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace oncekey
