// known_settings: the names of all settings, for tests that compare them with the manual.
#pragma once

#include <string>
#include <vector>

namespace oncekey {

// As they are looked up in docs/CONFIG.md: "listen", "limits.max_connections", "timeouts.idle", "path", "lease".
std::vector<std::string> known_settings();

} // namespace oncekey
