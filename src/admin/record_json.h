// record_json: records and jobs as the JSON API shows them, and what its requests say.
#pragma once

#include "admin/audit_trail.h"
#include "base/durations.h"
#include "core/job.h"

#include <oncekey/record.h>
#include <oncekey/result.h>

#include <boost/json.hpp>

namespace oncekey {

// Text that clients and upstreams may have sent, as UTF-8, which JSON is.
boost::json::string json_text(std::string_view view);

boost::json::object record_json(const RecordId& id, const Record& record, Time now);

// Whether bodies are shown, and the values of headers that may hold a secret.
enum class Bodies { hidden, shown };

// Changes with every step of the job: an action that names another one than the job has is refused.
std::string version_of(const StoredJob& job);
boost::json::object job_json(const StoredJob& job, Time now);
// Method, target, headers and body, in the manner of response_json.
boost::json::object message_json(const Message& message, Bodies bodies);

boost::json::object audit_json(const AuditLine& line);

// What an action that was done is answered with.
std::string done_json(const RecordId& id, std::string_view action);

// Status, headers and body. A body that is not UTF-8 is base64, and `body_encoding` says so. What is hidden is null.
boost::json::object response_json(const StoredResponse& response, Bodies bodies);

inline constexpr std::size_t kListMax = 10'000;

// What a request to find keys looks for: {"key", "principal", "headers", "route", "method", "path"}.
Result<struct KeySearch> key_search_in(const boost::json::object& given);

// What follows the question mark, and the value of a name in it.
std::string_view query_of(std::string_view target);
std::string_view query_value(std::string_view query, std::string_view name);
// The same with %XX decoded.
std::string decoded_query_value(std::string_view query, std::string_view name);
// The `limit` of a listing; `usual` where the query has none.
Result<std::size_t> limit_of(std::string_view query, std::size_t usual);
// The text that an object has under this name; empty if it has none.
std::string_view text_member(const boost::json::object& object, std::string_view name);

} // namespace oncekey
