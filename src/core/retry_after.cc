// Retry-After and the dates of HTTP.
#include "core/judge.h"

#include <algorithm>
#include <charconv>

namespace oncekey {
namespace {

constexpr std::string_view kMonths = "JanFebMarAprMayJunJulAugSepOctNovDec";

// So many digits at the front of the text; -1 if they are not there.
int take_number(std::string_view& text, std::size_t digits) {
  int number = -1;
  if (text.size() < digits || text.find_first_not_of("0123456789") < digits) return -1;
  std::from_chars(text.data(), text.data() + digits, number);
  text.remove_prefix(digits);
  return number;
}

unsigned take_month(std::string_view& text) {
  const std::size_t at = kMonths.find(text.substr(0, 3));
  if (text.size() < 3 || at == std::string_view::npos || at % 3 != 0) return 0;
  text.remove_prefix(3);
  return static_cast<unsigned>(at / 3 + 1);
}

// In `form`, W is the day of the week, D the day, _ the day with a blank for its first digit, B the month, Y the year,
// y its last two digits, h m s the time; anything else is itself.
std::optional<Time> date_of_form(std::string_view text, std::string_view form, int this_year) {
  int day = 0, year = 0, hour = 0, minute = 0, second = 0;
  unsigned month = 0;
  for (const char part : form) {
    switch (part) {
      case 'W':
        text.remove_prefix(std::min(text.find_first_of(", "), text.size()));
        break;
      case '_':
        if (text.starts_with(' ')) {
          text.remove_prefix(1);
          day = take_number(text, 1);
          break;
        }
        [[fallthrough]];
      case 'D':
        day = take_number(text, 2);
        break;
      case 'B':
        month = take_month(text);
        break;
      case 'Y':
        year = take_number(text, 4);
        break;
      case 'y':
        // The year is the one within fifty years of today.
        year = take_number(text, 2);
        if (year >= 0) year += this_year - this_year % 100;
        if (year > this_year + 50) year -= 100;
        break;
      case 'h':
        hour = take_number(text, 2);
        break;
      case 'm':
        minute = take_number(text, 2);
        break;
      case 's':
        second = take_number(text, 2);
        break;
      default:
        if (!text.starts_with(part)) return std::nullopt;
        text.remove_prefix(1);
    }
  }
  const bool in_range = day > 0 && year >= 0 && hour >= 0 && hour < 24 && minute >= 0 && minute < 60 && second >= 0 &&
                        second <= 60 && text.empty();
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(month),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!in_range || !date.ok()) return std::nullopt;
  return Time(std::chrono::sys_days(date) + std::chrono::hours(hour) + std::chrono::minutes(minute) +
              std::chrono::seconds(second));
}

} // namespace

std::optional<Time> parse_http_date(std::string_view text, Time wall_clock) {
  const std::chrono::year_month_day today(std::chrono::floor<std::chrono::days>(wall_clock));
  for (const std::string_view form : {"W, D B Y h:m:s GMT", "W, D-B-y h:m:s GMT", "W B _ h:m:s Y"}) {
    if (const auto time = date_of_form(text, form, static_cast<int>(today.year()))) return time;
  }
  return std::nullopt;
}

std::optional<Millis> retry_after(const Headers& headers, Time wall_clock) {
  const auto value = headers.get("Retry-After");
  if (!value || value->empty()) return std::nullopt;
  if (value->find_first_not_of("0123456789") == std::string_view::npos) {
    // More than nine digits are decades: longer than any limit on the wait.
    if (value->size() > 9) return Millis(std::chrono::hours(24 * 365));
    std::int64_t seconds = 0;
    std::from_chars(value->data(), value->data() + value->size(), seconds);
    return Millis(std::chrono::seconds(seconds));
  }
  const auto until = parse_http_date(*value, wall_clock);
  if (!until) return std::nullopt;
  const auto date = headers.get("Date");
  const auto from = date ? parse_http_date(*date, wall_clock) : std::nullopt;
  return std::max(Millis(0), *until - from.value_or(wall_clock));
}

} // namespace oncekey
