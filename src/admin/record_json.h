// record_json: records and jobs as the JSON API shows them.
#pragma once

#include "core/job.h"

#include <oncekey/record.h>

#include <boost/json/object.hpp>

#include <string>
#include <string_view>

namespace oncekey {

boost::json::object record_json(const RecordId& id, const Record& record, Time now);

boost::json::object job_json(const StoredJob& job, Time now);
// Method, target, headers and body, in the manner of response_json.
boost::json::object message_json(const Message& message);

// What an action that was done is answered with.
std::string done_json(const RecordId& id, std::string_view action);

// Status, headers and body. A body that is not UTF-8 is base64, and `body_encoding` says so.
boost::json::object response_json(const StoredResponse& response);

// "2026-01-02T03:04:05.678Z"
std::string iso_time(Time time);

} // namespace oncekey
