// The database of the library of atomic phases, for the commands that work on it.
#pragma once

#include <oncekey/database.h>
#include <oncekey/result.h>

#include <memory>
#include <string>

namespace oncekey {

// Opened, with the library's tables made. A file that does not exist is a fault: no database is created.
Result<std::unique_ptr<Database>> open_library_database(const std::string& url);

} // namespace oncekey
