#include "core/trace.h"

#include <algorithm>

namespace oncekey {
namespace {

// "00-" trace id "-" parent id "-" flags
constexpr std::size_t kTraceAt = 3;
constexpr std::size_t kTraceDigits = 32;
constexpr std::size_t kParentAt = 36;
constexpr std::size_t kParentDigits = 16;
constexpr std::size_t kFlagsAt = 53;
constexpr std::size_t kLength = 55;

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return digit(c) >= 0; });
}

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
  for (std::size_t i = 0; i < trace.size(); ++i) {
    trace[i] = static_cast<std::uint8_t>(digit(id[2 * i]) << 4 | digit(id[2 * i + 1]));
  }
  return trace;
}

std::optional<TraceId> trace_of(const Headers& headers) {
  std::optional<std::string_view> found;
  for (std::size_t i = 0; i < headers.size(); ++i) {
    const Field field = headers[i];
    if (!equal_ignoring_case(field.name, "traceparent")) continue;
    if (found) return std::nullopt;
    found = field.value;
  }
  return found ? parse_traceparent(*found) : std::nullopt;
}

} // namespace oncekey
