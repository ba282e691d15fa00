// load: a configuration from a file's text, with the settings that flags put above it.
#pragma once

#include "config/config.h"
#include "config/findings.h"

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

// Reads `text`, or the file, with the overrides in place of what the file says. Findings about an override name the
// flag.
ReadConfig read_config_text(std::string_view text, std::string_view file_name, const std::vector<Override>& overrides,
                            NamedFiles files);
ReadConfig read_config_file(const std::string& path, const std::vector<Override>& overrides, NamedFiles files);

} // namespace oncekey
