// faults: faults with a formatted message, and one that many formats share.
#pragma once

#include <oncekey/result.h>

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace oncekey {

template <class First, class... Rest>
Fault invalid(fmt::format_string<First, Rest...> text, First&& first, Rest&&... rest) {
  return invalid(fmt::format(text, std::forward<First>(first), std::forward<Rest>(rest)...));
}

// Something was written in a format with a higher number than this version knows. `what` begins the sentence and says
// where: "the store at ./data".
inline Fault newer_format(std::string_view what, std::uint64_t found, std::uint64_t known) {
  return {FaultKind::newer_format,
          fmt::format("{} has format {}, and this version of oncekey reads formats up to {}: it was written by a newer "
                      "oncekey; run that version, or a later one",
                      what, found, known)};
}

// The number behind `name` in the first line of a text: 3 of "oncekey audit 3\n". Nothing if it does not begin so.
inline std::optional<std::uint64_t> format_number_in(std::string_view text, std::string_view name) {
  if (!text.starts_with(name)) return std::nullopt;
  const std::string_view line = text.substr(0, text.find('\n')).substr(name.size());
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  if (error != std::errc{} || end != line.data() + line.size()) return std::nullopt;
  return number;
}

} // namespace oncekey
