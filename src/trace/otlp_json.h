// otlp_json: spans in the JSON encoding of OTLP, the OpenTelemetry protocol: ids in hexadecimal, times and whole
// numbers as text, enumerators as numbers.
#pragma once

#include "trace/span.h"

#include <span>

namespace oncekey {

// Who sends the spans: service.name, service.version, service.instance.id.
struct TraceResource {
  std::string service = "oncekey";
  std::string version{};
  std::string instance{};
};

// The body of a POST to /v1/traces.
std::string otlp_json(const TraceResource& resource, std::span<const Span> spans);

} // namespace oncekey
