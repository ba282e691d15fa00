// A configuration out of a text, or a fault with one line for each finding, for tests that need no more.
#pragma once

#include "config/load.h"

#include <oncekey/result.h>

#include <string>
#include <string_view>

namespace oncekey {

inline Result<Config> config_or_fault(const ReadConfig& read) {
  if (read.findings.empty()) return read.config;
  std::string message;
  for (const Finding& finding : read.findings) {
    if (!message.empty()) message += '\n';
    message += shown(finding, read.file_name);
  }
  return invalid(message);
}

inline Result<Config> parse_config(std::string_view text, std::string_view file_name) {
  return config_or_fault(read_config_text(text, file_name, NamedFiles::left_alone));
}

} // namespace oncekey
