#include "base/timestamp.h"

#include <fmt/format.h>

#include <cstdio>
#include <ctime>

namespace oncekey {

std::string timestamp(std::chrono::system_clock::time_point at) {
  const auto millis = std::chrono::floor<std::chrono::milliseconds>(at.time_since_epoch()).count();
  const std::time_t second = static_cast<std::time_t>(millis / 1000);
  std::tm parts{};
  gmtime_r(&second, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, millis % 1000);
}

std::optional<std::chrono::system_clock::time_point> parse_timestamp(std::string_view text) {
  constexpr std::string_view kForm = "0000-00-00T00:00:00.000";
  if (text.ends_with('Z')) text.remove_suffix(1);
  if (text.size() != 10 && text.size() != 16 && text.size() != 19 && text.size() != kForm.size()) return std::nullopt;
  std::string whole(kForm);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (kForm[i] == '0' ? !digit : text[i] != kForm[i]) return std::nullopt;
    whole[i] = text[i];
  }
  std::tm parts{};
  int millis = 0;
  if (std::sscanf(whole.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d.%3d", &parts.tm_year, &parts.tm_mon, &parts.tm_mday,
                  &parts.tm_hour, &parts.tm_min, &parts.tm_sec, &millis) != 7)
    return std::nullopt;
  const std::chrono::year_month_day day(std::chrono::year(parts.tm_year),
                                        std::chrono::month(static_cast<unsigned>(parts.tm_mon)),
                                        std::chrono::day(static_cast<unsigned>(parts.tm_mday)));
  // Beyond these years the clock's nanoseconds do not fit.
  if (parts.tm_year < 1970 || parts.tm_year > 2200) return std::nullopt;
  if (!day.ok() || parts.tm_hour > 23 || parts.tm_min > 59 || parts.tm_sec > 59) return std::nullopt;
  return std::chrono::sys_days(day) + std::chrono::hours(parts.tm_hour) + std::chrono::minutes(parts.tm_min) +
         std::chrono::seconds(parts.tm_sec) + std::chrono::milliseconds(millis);
}

} // namespace oncekey
