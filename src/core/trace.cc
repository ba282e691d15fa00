#include "core/trace.h"

#include "base/ascii.h"
#include "base/crypto.h"
#include "base/url.h"

#include <fmt/format.h>

namespace oncekey {
namespace {

// "00-" trace id "-" parent id "-" flags
constexpr std::size_t kTraceAt = 3;
constexpr std::size_t kTraceDigits = 32;
constexpr std::size_t kParentAt = 36;
constexpr std::size_t kParentDigits = 16;
constexpr std::size_t kFlagsAt = 53;
constexpr std::size_t kLength = 55;

bool is_hex(std::string_view text) { return consists_of(text, "0123456789abcdef"); }

bool is_id(std::string_view text) { return is_hex(text) && text.find_first_not_of('0') != std::string_view::npos; }

} // namespace

std::optional<TraceId> parse_traceparent(std::string_view value) {
  if (value.size() < kLength) return std::nullopt;
  const std::string_view version = value.substr(0, 2);
  if (!is_hex(version) || version == "ff") return std::nullopt;
  // Later versions may say more at the end.
  if (value.size() > kLength && (version == "00" || value[kLength] != '-')) return std::nullopt;
  if (value[kTraceAt - 1] != '-' || value[kParentAt - 1] != '-' || value[kFlagsAt - 1] != '-') return std::nullopt;
  const std::string_view id = value.substr(kTraceAt, kTraceDigits);
  if (!is_id(id) || !is_id(value.substr(kParentAt, kParentDigits)) || !is_hex(value.substr(kFlagsAt, 2)))
    return std::nullopt;
  TraceId trace;
  for (std::size_t i = 0; i < trace.size(); ++i)
    trace[i] = static_cast<std::uint8_t>(hex_value(id[2 * i]) << 4 | hex_value(id[2 * i + 1]));
  return trace;
}

std::optional<TraceContext> parse_trace_context(std::string_view traceparent) {
  const std::optional<TraceId> trace = parse_traceparent(traceparent);
  if (!trace) return std::nullopt;
  TraceContext context{*trace, {}, 0};
  const auto byte_at = [&](std::size_t at) {
    return static_cast<std::uint8_t>(hex_value(traceparent[at]) << 4 | hex_value(traceparent[at + 1]));
  };
  for (std::size_t i = 0; i < context.span.size(); ++i) context.span[i] = byte_at(kParentAt + 2 * i);
  context.flags = byte_at(kFlagsAt);
  return context;
}

std::string traceparent_of(const TraceContext& context) {
  return fmt::format("00-{}-{}-{:02x}", hex_encode(context.trace), hex_encode(context.span), context.flags);
}

std::optional<TraceContext> trace_context_of(const Headers& headers) {
  const auto value = headers.get("traceparent");
  return value && headers.count("traceparent") == 1 ? parse_trace_context(*value) : std::nullopt;
}

std::optional<TraceId> trace_of(const Headers& headers) {
  const auto value = headers.get("traceparent");
  return value && headers.count("traceparent") == 1 ? parse_traceparent(*value) : std::nullopt;
}

} // namespace oncekey
