#include "admin/audit_trail.h"

#include <algorithm>

namespace oncekey {

void AuditTrail::note(AuditLine line, std::string_view peer) {
  log_.always("operator_action", {{"action", line.action},
                                  {"id", line.id},
                                  {"result", line.result},
                                  {"who", line.who},
                                  {"peer", peer},
                                  {"reason", line.reason}});
  if (also_) also_(line);
  if (lines_.size() == kMost) lines_.pop_front();
  lines_.push_back(std::move(line));
}

std::vector<AuditLine> AuditTrail::about(const RecordId& id) const {
  if (older_) return older_(id);
  const std::string hex = to_hex(id);
  std::vector<AuditLine> found;
  std::copy_if(lines_.begin(), lines_.end(), std::back_inserter(found),
               [&](const AuditLine& line) { return line.id == hex; });
  return found;
}

std::vector<AuditLine> AuditTrail::newest(std::size_t limit) const {
  const std::size_t count = std::min(limit, lines_.size());
  return {lines_.rbegin(), lines_.rbegin() + static_cast<std::ptrdiff_t>(count)};
}

} // namespace oncekey
