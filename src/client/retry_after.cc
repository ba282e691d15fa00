// Retry-After and the dates of HTTP.
#include "client/judge.h"

#include <array>
#include <charconv>

namespace oncekey {
namespace {

constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                      "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

// Takes a date apart from left to right; the first mistake makes everything behind it a mistake.
class DateReader {
 public:
  explicit DateReader(std::string_view text) : rest_(text) {}

  bool good() const { return good_; }
  bool at_end() const { return good_ && rest_.empty(); }

  void literal(std::string_view text) {
    if (rest_.starts_with(text)) {
      rest_.remove_prefix(text.size());
    } else {
      good_ = false;
    }
  }
  // Up to and with `end`.
  void skip_past(std::string_view end) {
    const std::size_t at = rest_.find(end);
    if (at == std::string_view::npos) {
      good_ = false;
    } else {
      rest_.remove_prefix(at + end.size());
    }
  }
  int number(std::size_t digits) {
    int value = 0;
    const char* const begin = rest_.data();
    const char* const end = begin + std::min(digits, rest_.size());
    const auto [stop, error] = std::from_chars(begin, end, value);
    if (error != std::errc{} || stop != begin + digits || value < 0) good_ = false;
    if (good_) rest_.remove_prefix(digits);
    return value;
  }
  // asctime writes the day with a blank where others write a zero.
  int day_with_blank() {
    if (!rest_.starts_with(' ')) return number(2);
    rest_.remove_prefix(1);
    return number(1);
  }
  unsigned month() {
    for (std::size_t i = 0; i < kMonths.size(); ++i) {
      if (!rest_.starts_with(kMonths[i])) continue;
      rest_.remove_prefix(3);
      return static_cast<unsigned>(i + 1);
    }
    good_ = false;
    return 0;
  }
  std::chrono::seconds time_of_day() {
    const int hours = number(2);
    literal(":");
    const int minutes = number(2);
    literal(":");
    const int seconds = number(2);
    if (hours > 23 || minutes > 59 || seconds > 60) good_ = false;
    return std::chrono::hours(hours) + std::chrono::minutes(minutes) + std::chrono::seconds(seconds);
  }

 private:
  std::string_view rest_;
  bool good_ = true;
};

std::optional<Time> moment(const DateReader& reader, int year, unsigned month, int day, std::chrono::seconds time) {
  if (!reader.at_end()) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(month),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok()) return std::nullopt;
  return Time(std::chrono::sys_days(date) + time);
}

// "Sun, 06 Nov 1994 08:49:37 GMT"
std::optional<Time> fixdate(std::string_view text) {
  DateReader reader(text);
  reader.skip_past(", ");
  const int day = reader.number(2);
  reader.literal(" ");
  const unsigned month = reader.month();
  reader.literal(" ");
  const int year = reader.number(4);
  reader.literal(" ");
  const auto time = reader.time_of_day();
  reader.literal(" GMT");
  return moment(reader, year, month, day, time);
}

// "Sunday, 06-Nov-94 08:49:37 GMT": the year is the one within fifty years of today.
std::optional<Time> rfc850_date(std::string_view text, Time wall_clock) {
  DateReader reader(text);
  reader.skip_past(", ");
  const int day = reader.number(2);
  reader.literal("-");
  const unsigned month = reader.month();
  reader.literal("-");
  const int two_digits = reader.number(2);
  reader.literal(" ");
  const auto time = reader.time_of_day();
  reader.literal(" GMT");
  const std::chrono::year_month_day today(std::chrono::floor<std::chrono::days>(wall_clock));
  const int this_year = static_cast<int>(today.year());
  int year = this_year - this_year % 100 + two_digits;
  if (year > this_year + 50) year -= 100;
  return moment(reader, year, month, day, time);
}

// "Sun Nov  6 08:49:37 1994"
std::optional<Time> asctime_date(std::string_view text) {
  DateReader reader(text);
  reader.skip_past(" ");
  const unsigned month = reader.month();
  reader.literal(" ");
  const int day = reader.day_with_blank();
  reader.literal(" ");
  const auto time = reader.time_of_day();
  reader.literal(" ");
  const int year = reader.number(4);
  return moment(reader, year, month, day, time);
}

} // namespace

std::optional<Time> parse_http_date(std::string_view text, Time wall_clock) {
  if (const auto time = fixdate(text)) return time;
  if (const auto time = rfc850_date(text, wall_clock)) return time;
  return asctime_date(text);
}

std::optional<Millis> retry_after(const Headers& headers, Time wall_clock) {
  const auto value = headers.get("Retry-After");
  if (!value || value->empty()) return std::nullopt;
  if (value->find_first_not_of("0123456789") == std::string_view::npos) {
    // More than nine digits are decades; whoever means them is not waited for anyway.
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
