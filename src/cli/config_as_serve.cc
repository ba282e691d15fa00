#include "cli/config_as_serve.h"

#include "audit/audit_log.h"
#include "store/open_store.h"

#include <algorithm>

namespace oncekey {

ReadConfig read_config_as_serve(const ServeFlags& flags) {
  ReadConfig read = read_config(flags, NamedFiles::looked_at);
  const auto add = [&](const std::string& setting, const Status& usable) {
    const bool reported = std::any_of(read.findings.begin(), read.findings.end(),
                                      [&](const Finding& finding) { return finding.setting == setting; });
    if (usable || reported) return;
    const auto line = read.lines.find(setting);
    read.findings.push_back(
        {line == read.lines.end() ? 0 : line->second, setting, fmt::format("{}: {}", setting, usable.fault().message)});
  };
  add("store", check_store_url(read.config.store));
  const std::string& audit_log = read.config.audit_log;
  if (!audit_log.empty() && audit_log != "off") add("audit_log", AuditLog::check(audit_log));
  std::stable_sort(read.findings.begin(), read.findings.end(),
                   [](const Finding& a, const Finding& b) { return a.line < b.line; });
  return read;
}

} // namespace oncekey
