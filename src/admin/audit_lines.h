// audit_lines: the audit log as the JSON API shows it, and what operators do as lines of it.
#pragma once

#include "admin/audit_trail.h"
#include "admin/page_answer.h"
#include "gateway/shared.h"

#include <boost/json.hpp>

namespace oncekey {

// Puts a line of the audit trail into the audit log, where there is one.
void audit_action(GatewayShared& shared, const AuditLine& line);

// The answer to GET /api/audit out of the log: what operators did; with `record` or `events=all` decisions too.
PageAnswer audit_log_page(GatewayShared& shared, std::string_view query);
// The same out of memory, where there is no log.
PageAnswer audit_memory_page(const AuditTrail& trail, std::string_view query);
// The answer to POST /api/audit/find.
PageAnswer find_audit(GatewayShared& shared, const boost::json::object& given);

// What the log says of one record or job, for its page. Looks at the newest megabytes of the log.
RecordTrail audit_of_record(GatewayShared& shared, const RecordId& id);

} // namespace oncekey
