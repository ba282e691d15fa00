#include "trace/otlp_json.h"

#include "base/crypto.h"
#include "base/json_text.h"

#include <fmt/format.h>

namespace oncekey {
namespace {

constexpr int kStatusError = 2;

void append_attribute(std::string& out, const SpanAttribute& attribute) {
  if (out.back() != '[') out.push_back(',');
  out += "{\"key\":";
  append_json_string(out, attribute.name);
  out += ",\"value\":{";
  if (const auto* const text = std::get_if<std::string>(&attribute.value)) {
    out += "\"stringValue\":";
    append_json_string(out, *text);
  } else {
    out += fmt::format("\"intValue\":\"{}\"", std::get<std::int64_t>(attribute.value));
  }
  out += "}}";
}

std::int64_t nanos_of(std::chrono::system_clock::time_point at) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

void append_span(std::string& out, const Span& span) {
  out += fmt::format(R"({{"traceId":"{}","spanId":"{}")", hex_encode(span.trace), hex_encode(span.span));
  if (span.parent) out += fmt::format(R"(,"parentSpanId":"{}")", hex_encode(*span.parent));
  if (!span.state.empty()) {
    out += ",\"traceState\":";
    append_json_string(out, span.state);
  }
  out += ",\"name\":";
  append_json_string(out, span.name);
  out += fmt::format(R"(,"kind":{},"startTimeUnixNano":"{}","endTimeUnixNano":"{}","attributes":[)",
                     static_cast<int>(span.kind), nanos_of(span.begin), nanos_of(span.end));
  for (const SpanAttribute& attribute : span.attributes) append_attribute(out, attribute);
  out += "]";
  if (span.link) {
    out += fmt::format(R"(,"links":[{{"traceId":"{}","spanId":"{}"}}])", hex_encode(span.link->trace),
                       hex_encode(span.link->span));
  }
  if (span.fault) {
    out += fmt::format(",\"status\":{{\"code\":{},\"message\":", kStatusError);
    append_json_string(out, *span.fault);
    out += "}";
  }
  out += "}";
}

} // namespace

std::string otlp_json(const TraceResource& resource, std::span<const Span> spans) {
  std::string out = R"({"resourceSpans":[{"resource":{"attributes":[)";
  append_attribute(out, {"service.name", resource.service});
  if (!resource.version.empty()) append_attribute(out, {"service.version", resource.version});
  if (!resource.instance.empty()) append_attribute(out, {"service.instance.id", resource.instance});
  out += R"(]},"scopeSpans":[{"scope":{"name":"oncekey"},"spans":[)";
  for (const Span& span : spans) {
    if (out.back() != '[') out.push_back(',');
    append_span(out, span);
  }
  out += "]}]}]}";
  return out;
}

} // namespace oncekey
