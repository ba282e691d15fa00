#include "cli/library_database.h"

#include <fmt/format.h>

#include <filesystem>

namespace oncekey {
namespace {

// A fault if the file does not exist: opening would make an empty database, without any work in it.
Status check_there(const std::string& url) {
  constexpr std::string_view kSqlite = "sqlite:";
  if (!url.starts_with(kSqlite)) return ok_status();
  const std::string path = url.substr(kSqlite.size());
  std::error_code ignored;
  if (path.empty() || std::filesystem::exists(path, ignored)) return ok_status();
  return unavailable(fmt::format("there is no database {}: start the application first, which makes it", path));
}

} // namespace

Result<std::unique_ptr<Database>> open_library_database(const std::string& url) {
  if (const Status there = check_there(url); !there) return there.fault();
  auto database = open_database(url);
  if (!database) return std::move(database).fault();
  if (const Status migrated = (*database)->migrate(); !migrated) return migrated.fault();
  return database;
}

} // namespace oncekey
