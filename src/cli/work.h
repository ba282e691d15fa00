// oncekey work: the workers of the library of atomic phases, as a process of their own; and oncekey schema, its tables.
#pragma once

#include <oncekey/database.h>
#include <oncekey/result.h>

#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace oncekey {

// The database of the library, migrated. One that is not there is not made.
Result<std::unique_ptr<Database>> open_library_database(const std::string& url);

class WorkCommand {
 public:
  explicit WorkCommand(CLI::App& app);
  bool chosen() const;
  int run() const;

 private:
  CLI::App* work_;
  std::string store_;
  std::vector<std::string> resumes_;
  std::vector<std::string> resume_authorizations_;
  std::size_t resume_concurrency_ = 8;
  std::size_t sink_concurrency_ = 1;
  std::vector<std::string> http_sinks_;
  std::vector<std::string> sink_authorizations_;
  std::vector<std::string> sidekiq_sinks_;
  std::vector<std::string> stream_sinks_;
  std::string grace_ = "5m";
  bool once_ = false;
  bool list_dead_ = false;
  std::string restart_operation_;
  bool confirmed_not_executed_ = false;
};

class SchemaCommand {
 public:
  explicit SchemaCommand(CLI::App& app);
  bool chosen() const;
  int run() const;

 private:
  CLI::App* schema_;
  std::string dialect_;
};

} // namespace oncekey
