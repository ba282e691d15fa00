// JobsDesk: where `oncekey jobs` asks and acts. Answers are those of the admin API, whatever keeps the jobs.
#pragma once

#include "cli/admin_client.h"

#include <oncekey/database.h>

#include <cstdint>
#include <memory>
#include <string>

namespace oncekey {

class JobsDesk {
 public:
  virtual ~JobsDesk() = default;
  // Empty texts ask for all.
  virtual Result<AdminAnswer> list(const std::string& state, const std::string& endpoint, std::uint32_t limit) = 0;
  virtual Result<AdminAnswer> show(const std::string& id) = 0;
  // retry or drop.
  virtual Result<AdminAnswer> act(const std::string& id, const std::string& action, const std::string& reason) = 0;
};

// The jobs of a running gateway, through its admin listener.
std::unique_ptr<JobsDesk> jobs_of_gateway(AdminClient client);
// The jobs in the database of the library (oncekey_job). An endpoint is a sink, and an id a number.
std::unique_ptr<JobsDesk> jobs_of_database(std::unique_ptr<Database> database);

} // namespace oncekey
