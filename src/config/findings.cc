#include "config/findings.h"

#include <fmt/format.h>

namespace oncekey {

std::string shown(const Finding& finding, std::string_view file_name) {
  if (finding.line != 0) return fmt::format("{}:{}: {}", file_name, finding.line, finding.text);
  if (finding.setting.empty() && !file_name.empty()) return fmt::format("{}: {}", file_name, finding.text);
  return finding.text;
}

Result<Config> config_or_fault(ReadConfig read) {
  if (read.findings.empty()) return std::move(read.config);
  std::string message;
  for (const Finding& finding : read.findings) {
    if (!message.empty()) message += '\n';
    message += shown(finding, read.file_name);
  }
  return invalid(std::move(message));
}

} // namespace oncekey
