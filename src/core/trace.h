// trace: the trace a request belongs to, by the W3C's Trace Context recommendation.
//
// The gateway forwards `traceparent` as it came. It keeps the trace id in the record, so that an operator finds the
// execution behind a replay.
#pragma once

#include <oncekey/headers.h>
#include <oncekey/record.h>

#include <optional>
#include <string_view>

namespace oncekey {

// The trace id of a `traceparent`. Nothing if the value does not follow the recommendation: a version of "ff", capital
// letters, an id of zeros alone, or other lengths.
std::optional<TraceId> parse_traceparent(std::string_view value);

// Of a request. Nothing also where it has more than one such field.
std::optional<TraceId> trace_of(const Headers& headers);

} // namespace oncekey
