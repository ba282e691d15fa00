// trace: the trace a request belongs to, by the W3C's Trace Context recommendation.
//
// The gateway keeps the trace id in the record, so that an operator finds the execution behind a replay. Where it
// traces (gateway/tracing.h), the upstream gets a `traceparent` with the span of the gateway's call; else as it came.
#pragma once

#include <oncekey/headers.h>
#include <oncekey/record.h>

#include <optional>
#include <string_view>

namespace oncekey {

// The trace id of a `traceparent`. Nothing if the value does not follow the recommendation: a version of "ff", capital
// letters, an id of zeros alone, or other lengths.
std::optional<TraceId> parse_traceparent(std::string_view value);

// All of it: also the span that sent the request, and the flags.
using SpanId = std::array<std::uint8_t, 8>;
struct TraceContext {
  TraceId trace{};
  SpanId span{};
  std::uint8_t flags = 0;
  bool sampled() const { return (flags & 1) != 0; }
};
std::optional<TraceContext> parse_trace_context(std::string_view traceparent);
// The header's value, of version 00.
std::string traceparent_of(const TraceContext& context);
std::optional<TraceContext> trace_context_of(const Headers& headers);

// Of a request. Nothing also where it has more than one such field.
std::optional<TraceId> trace_of(const Headers& headers);

} // namespace oncekey
