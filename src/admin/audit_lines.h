// audit_lines: the audit log as the JSON API shows it, and what operators do as lines of it.
#pragma once

#include "admin/audit_trail.h"
#include "admin/page_answer.h"
#include "admin/side_thread.h"
#include "audit/read_audit.h"
#include "gateway/shared.h"

#include <boost/json.hpp>

namespace oncekey {

// Puts a line of the audit trail into the audit log, where there is one.
void audit_action(GatewayShared& shared, const AuditLine& line);

// The answer to GET /api/audit out of memory, where there is no log.
PageAnswer audit_memory_page(const AuditTrail& trail, std::string_view query);

// The pages that read the log. The files are read, and lines waited for, on a thread of their own.
//
// Belongs to the operators' loop.
class AuditPages {
 public:
  AuditPages(GatewayShared& shared, Loop& loop) : shared_(shared), loop_(loop) {}

  // The answer to GET /api/audit: what operators did; with `record` or `events=all` decisions too.
  Task<PageAnswer> list(std::string_view query);
  // The answer to POST /api/audit/find.
  Task<PageAnswer> find(const boost::json::object& given);
  // What the log says of one record or job, for its page. Looks at the newest megabytes of the log.
  Task<RecordTrail> about(const RecordId& id);
  // Returns when every line so far is in the file, or could not be written.
  Task<void> written();

 private:
  Task<Result<boost::json::object>> page_of(const AuditQuery& query);

  GatewayShared& shared_;
  Loop& loop_;
  SideThread side_;
};

} // namespace oncekey
