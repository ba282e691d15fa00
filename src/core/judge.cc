#include "core/judge.h"

#include "base/ascii.h"
#include "core/json_pointer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>
#include <map>

namespace oncekey {
namespace {

std::string text_at(std::string_view json, std::string_view pointer) {
  JsonPlace place = find_in_json(json, pointer);
  return place.kind == JsonPlace::Kind::string ? std::move(place.text) : std::string();
}

// The last part of a problem type: "mismatch" of "urn:oncekey:problem:mismatch" and of
// "https://example.com/p#mismatch".
std::string_view last_part(std::string_view type) {
  const std::size_t cut = type.find_last_of(":/#");
  return cut == std::string_view::npos ? type : type.substr(cut + 1);
}

enum class Meaning { unsaid, in_progress, another_request, unknown_for_good, answer_lost };

// What a code means, be it a Stripe code, the end of a problem type or another vendor's member `code`.
Meaning meaning_of_code(std::string_view code) {
  if (code == "idempotency_key_in_use" || code == "in_progress") return Meaning::in_progress;
  if (code == "indeterminate" || code == "idempotency_outcome_unknown") return Meaning::unknown_for_good;
  if (code == "answer_not_kept" || code == "idempotency_answer_not_kept") return Meaning::answer_lost;
  if (ends_with_ignoring_case(code, "mismatch") || ends_with_ignoring_case(code, "reused"))
    return Meaning::another_request;
  return Meaning::unsaid;
}

// What the body of an error says about the key.
Meaning meaning_of_body(std::string_view body) {
  for (const std::string_view pointer : {"/error/code", "/code"}) {
    if (const Meaning meaning = meaning_of_code(text_at(body, pointer)); meaning != Meaning::unsaid) return meaning;
  }
  if (text_at(body, "/error/type") == "idempotency_error") return Meaning::another_request;
  const std::string type = text_at(body, "/type");
  if (const Meaning meaning = meaning_of_code(last_part(type)); meaning != Meaning::unsaid) return meaning;
  // The titles of the IETF draft's examples, which servers copy.
  const std::string title = text_at(body, "/title");
  if (equal_ignoring_case(title, "Idempotency-Key is already used")) return Meaning::another_request;
  return Meaning::unsaid;
}

bool says_true(const Headers& headers, std::string_view name) {
  const auto value = headers.get(name);
  return value && equal_ignoring_case(*value, "true");
}

constexpr int kLeast = std::numeric_limits<int>::min();
constexpr int kMost = std::numeric_limits<int>::max();

constexpr StatusMeaning kMeanings[] = {
    // Statuses, a call, whether it may have been done, a delivery, whose trouble. The first row with the status counts.
    {200, 299, Judgement::success, true, Judgement::success, Suspect::message},
    {303, 303, Judgement::success, true, Judgement::retry, Suspect::either},
    {kLeast, 399, Judgement::refusal, true, Judgement::retry, Suspect::either}, // redirections are not followed
    {401, 401, Judgement::refusal, false, Judgement::retry, Suspect::either},
    {403, 403, Judgement::refusal, false, Judgement::retry, Suspect::either},
    {407, 407, Judgement::refusal, false, Judgement::retry, Suspect::either},
    {408, 408, Judgement::retry, false, Judgement::retry, Suspect::receiver},
    {409, 409, Judgement::retry, true, Judgement::retry, Suspect::message},
    {410, 410, Judgement::refusal, false, Judgement::refusal, Suspect::message},
    {425, 425, Judgement::retry, false, Judgement::retry, Suspect::receiver},
    {429, 429, Judgement::retry, false, Judgement::retry, Suspect::receiver},
    {400, 499, Judgement::refusal, false, Judgement::retry, Suspect::message},
    {503, 503, Judgement::retry, true, Judgement::retry, Suspect::receiver},
    {500, kMost, Judgement::retry, true, Judgement::retry, Suspect::either},
};

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
  std::map<char, int> numbers; // by their letters
  unsigned month = 0;
  for (const char part : form) {
    if (part == 'W') {
      text.remove_prefix(std::min(text.find_first_of(", "), text.size()));
    } else if (part == 'B') {
      month = take_month(text);
    } else if (part == '_' && text.starts_with(' ')) {
      text.remove_prefix(1);
      numbers['D'] = take_number(text, 1);
    } else if (std::string_view("_DYyhms").find(part) != std::string_view::npos) {
      numbers[part == '_' ? 'D' : part] = take_number(text, part == 'Y' ? 4 : 2);
    } else if (text.starts_with(part)) {
      text.remove_prefix(1);
    } else {
      return std::nullopt;
    }
  }
  int year = numbers['Y'];
  if (numbers.contains('y')) {
    // The year is the one within fifty years of today.
    year = numbers['y'] < 0 ? -1 : numbers['y'] + this_year - this_year % 100;
    if (year > this_year + 50) year -= 100;
  }
  const int day = numbers['D'], hour = numbers['h'], minute = numbers['m'], second = numbers['s'];
  const bool in_range = day > 0 && year >= 0 && hour >= 0 && hour < 24 && minute >= 0 && minute < 60 && second >= 0 &&
                        second <= 60 && text.empty();
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(month),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!in_range || !date.ok()) return std::nullopt;
  return Time(std::chrono::sys_days(date) + std::chrono::hours(hour) + std::chrono::minutes(minute) +
              std::chrono::seconds(second));
}

} // namespace

const StatusMeaning& meaning_of(int status) {
  return *std::find_if(std::begin(kMeanings), std::end(kMeanings),
                       [&](const StatusMeaning& meaning) { return status >= meaning.first && status <= meaning.last; });
}

bool is_about_the_caller(int status) { return status == 401 || status == 403 || status == 407; }

Judged judge_call(int status, std::string_view reason, const Headers& headers, std::string_view body) {
  const StatusMeaning& by_status = meaning_of(status);
  if (by_status.call == Judgement::success) return {Judgement::success, "", true};
  const std::string text = reason.empty() ? fmt::format("{}", status) : fmt::format("{} {}", status, reason);
  if (status < 400) {
    return {Judgement::refusal, text + ": redirections are not followed, a key belongs to the server it was made for",
            true};
  }
  const bool may_have_done = by_status.may_have_done;
  const Meaning meaning = meaning_of_body(body);
  const bool in_progress = meaning == Meaning::in_progress;
  // Adyen's word for the same thing is transient-error.
  if (says_true(headers, "Stripe-Should-Retry") || says_true(headers, "transient-error"))
    return {Judgement::retry, text, may_have_done, in_progress};
  switch (meaning) {
    case Meaning::another_request:
      // A server that failed may speak of any mismatch; it has not judged the request, and may have done it.
      if (status >= 500) break;
      return {Judgement::refusal, text + ": the key was used with another request", false, false, true};
    case Meaning::unknown_for_good:
      return {Judgement::refusal,
              text + ": the outcome of an earlier try is unknown, and trying again will not settle it", true};
    case Meaning::answer_lost:
      return {Judgement::refusal, text + ": it was done, but the answer was too long for the server to keep", true};
    case Meaning::in_progress:
    case Meaning::unsaid:
      break;
  }
  if (headers.has("Stripe-Should-Retry"))
    return {Judgement::refusal, text + ": the server says that trying again changes nothing", may_have_done};
  return {by_status.call, text, may_have_done, by_status.call == Judgement::retry && in_progress};
}

bool is_replay(const Headers& headers) {
  for (const std::string_view name : {"Idempotent-Replayed", "Idempotency-Replayed", "Request-Idempotency"}) {
    if (says_true(headers, name)) return true;
  }
  return false;
}

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
