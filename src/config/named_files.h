// named_files: the files and folders that a configuration names, looked at before anything starts.
#pragma once

#include "config/problems.h"

#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

// Certificates, keys, accounts, key sets and the folder of an embedded store: what `oncekey serve` would stop at.
// Nothing is made, changed, locked or connected to.
std::vector<Problem> problems_of_files(const Config& config);

// What is allowed but deserves a second look: certificates whose time is over.
std::vector<std::string> warnings_of_files(const Config& config);

// The name under which a problem names a setting of the webhook or destination with this index.
std::string setting_in(std::string_view list, std::size_t index, std::string_view setting);

} // namespace oncekey
