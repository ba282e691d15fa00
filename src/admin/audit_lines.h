// audit_lines: the audit log as the JSON API shows it, and what operators do as lines of it.
#pragma once

#include "gateway/shared.h"

#include <boost/json.hpp>

namespace oncekey {

// Puts an operator's action on record: in the audit log where there is one. `id` is that of a record or job, and
// `record` the record as it was before; null where there is none.
void audit_action(GatewayShared& shared, std::string_view who, std::string_view action, std::string_view result,
                  std::string_view reason, const RecordId* id = nullptr, const Record* record = nullptr);

// The answer to GET /api/audit: {"lines", "next", "from"}. The fault is `invalid` where the query is wrong.
Result<boost::json::object> audit_page(GatewayShared& shared, std::string_view query);

// The newest lines about one record, newest first: for the record's timeline. Looks at the newest megabytes of the log
// alone. Empty where there is no audit log.
std::vector<boost::json::object> audit_of_record(GatewayShared& shared, const RecordId& id, std::size_t limit);

} // namespace oncekey
