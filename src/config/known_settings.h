// known_settings: the names of all settings, for whoever has to be complete about them.
#pragma once

#include <string>
#include <vector>

namespace oncekey {

// As they are looked up in docs/CONFIG.md: "listen", "limits.max_connections", "timeouts.idle", "path", "lease".
std::vector<std::string> known_settings();

} // namespace oncekey
