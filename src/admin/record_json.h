// record_json: records as the JSON API shows them.
#pragma once

#include <oncekey/record.h>

#include <boost/json/object.hpp>

#include <string>
#include <string_view>

namespace oncekey {

boost::json::object record_json(const RecordId& id, const Record& record, Time now);

// A message that is delivered: waiting, delivering, delivered or dead.
std::string_view job_state(const Record& record, Time now);
// What an operator's drop leaves as the reason of a message that is over.
inline constexpr std::string_view kDropped = "dropped by an operator";
boost::json::object job_json(const RecordId& id, const Record& record, Time now);

// Status, headers and body. A body that is not UTF-8 is base64, and `body_encoding` says so.
boost::json::object response_json(const StoredResponse& response);

// "2026-01-02T03:04:05.678Z"
std::string iso_time(Time time);

} // namespace oncekey
