// span: a part of a request that took time, as tracing systems know it.
#pragma once

#include "core/trace.h"

#include <chrono>
#include <string>
#include <variant>
#include <vector>

namespace oncekey {

// The numbers are OTLP's.
enum class SpanKind { internal = 1, server = 2, client = 3 };

struct SpanAttribute {
  std::string name;
  std::variant<std::string, std::int64_t> value;
};

struct SpanLink {
  TraceId trace{};
  SpanId span{};
};

struct Span {
  TraceId trace{};
  SpanId span{};
  std::optional<SpanId> parent{};
  std::string state{}; // the tracestate that came with the request
  std::string name{};
  SpanKind kind = SpanKind::internal;
  std::chrono::system_clock::time_point begin{};
  std::chrono::system_clock::time_point end{};
  std::vector<SpanAttribute> attributes{};
  std::optional<SpanLink> link{};
  std::optional<std::string> fault{}; // it failed, and why
};

} // namespace oncekey
