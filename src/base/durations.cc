#include "base/durations.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <charconv>
#include <ctime>
#include <limits>

namespace oncekey {
namespace {

struct Unit64 {
  std::string_view name;
  std::uint64_t factor;
};

// Reads "<whole number><unit>". Nothing when the number does not parse, the unit is unknown, or the product overflows.
template <std::size_t N>
std::optional<std::uint64_t> parse_with_unit(std::string_view text, const Unit64 (&units)[N]) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end == text.data()) return std::nullopt;
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  for (const Unit64& known : units) {
    if (unit == known.name) {
      if (number > kMost / known.factor) return std::nullopt;
      return number * known.factor;
    }
  }
  return std::nullopt;
}

constexpr Unit64 kTimeUnits[] = {{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}, {"d", 86'400'000}};
constexpr Unit64 kByteUnits[] = {{"", 1}, {"B", 1}, {"KiB", 1u << 10}, {"MiB", 1u << 20}, {"GiB", 1u << 30}};

} // namespace

Result<Millis> parse_duration(std::string_view text) {
  if (const auto millis = parse_with_unit(text, kTimeUnits)) return Millis(*millis);
  return invalid(
      fmt::format("\"{}\" is not a duration: write a whole number and a unit, as in 250ms, 60s, 5m, 24h or 30d", text));
}

std::string format_duration(Millis duration) {
  const auto millis = static_cast<std::uint64_t>(duration.count());
  // Days only from two on: people say 24h, and 30d.
  if (millis != 0 && millis % 86'400'000 == 0 && millis > 86'400'000) return fmt::format("{}d", millis / 86'400'000);
  if (millis != 0 && millis % 3'600'000 == 0) return fmt::format("{}h", millis / 3'600'000);
  if (millis != 0 && millis % 60'000 == 0 && millis > 60'000) return fmt::format("{}m", millis / 60'000);
  if (millis % 1000 == 0) return fmt::format("{}s", millis / 1000);
  return fmt::format("{}ms", millis);
}

Result<std::uint64_t> parse_bytes(std::string_view text) {
  if (const auto bytes = parse_with_unit(text, kByteUnits)) return *bytes;
  return invalid(fmt::format("\"{}\" is not a size: write a whole number of bytes, or one with KiB, MiB or GiB", text));
}

std::string iso_time(Time time) {
  const auto since_epoch = time.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since_epoch);
  const std::time_t whole = seconds.count();
  std::tm parts{};
  gmtime_r(&whole, &parts);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", parts, (since_epoch - seconds).count());
}

} // namespace oncekey
