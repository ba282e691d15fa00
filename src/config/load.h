// load: a configuration from a file's text, with the settings that flags put above it.
#pragma once

#include "config/config.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace oncekey {

// A setting that came as a flag: its name as in the file, and its value as the file would have it.
struct Override {
  std::string setting;
  std::variant<std::string, std::vector<std::string>, std::int64_t> value;
};

// Reads `text` with the overrides in place of what the file says. Findings about an override name the flag.
Result<Config> parse_config_under(std::string_view text, std::string_view file_name,
                                  const std::vector<Override>& overrides);
Result<Config> load_config_under(const std::string& path, const std::vector<Override>& overrides);

} // namespace oncekey
