#include "admin/audit_trail.h"

#include <algorithm>

namespace oncekey {

void AuditTrail::note(AuditLine line) {
  log_.always("operator_action", {{"action", line.action},
                                  {"id", line.id},
                                  {"result", line.result},
                                  {"who", line.who},
                                  {"peer", line.peer},
                                  {"reason", line.reason}});
  if (also_) also_(line);
  line.n = ++noted_;
  if (lines_.size() == kMost) lines_.pop_front();
  lines_.push_back(std::move(line));
}

Task<RecordTrail> AuditTrail::about(const RecordId& id) const {
  if (older_) co_return co_await older_(id);
  const std::string hex = to_hex(id);
  RecordTrail found;
  std::copy_if(lines_.begin(), lines_.end(), std::back_inserter(found.actions),
               [&](const AuditLine& line) { return line.id == hex; });
  co_return found;
}

std::vector<AuditLine> AuditTrail::newest(std::size_t limit, std::uint64_t before, std::optional<Time> until) const {
  std::vector<AuditLine> found;
  for (auto line = lines_.rbegin(); line != lines_.rend() && found.size() < limit; ++line) {
    if ((before == 0 || line->n < before) && (!until || line->at < *until)) found.push_back(*line);
  }
  return found;
}

} // namespace oncekey
