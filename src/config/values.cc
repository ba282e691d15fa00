#include "config/values.h"

#include "base/durations.h"
#include "core/rate.h"

#include <charconv>
#include <system_error>

namespace oncekey {
namespace {

// Longer than any useful setting. The bound keeps sums of times far from overflow.
constexpr Millis kLongestDuration = std::chrono::hours(24 * 366);

std::string_view kind_of(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::none:
      return "nothing";
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::string:
      return "text";
    case toml::node_type::integer:
      return "a whole number";
    case toml::node_type::floating_point:
      return "a fraction";
    case toml::node_type::boolean:
      return "true or false";
    case toml::node_type::date:
    case toml::node_type::time:
    case toml::node_type::date_time:
      return "a date or time";
  }
  return "something else";
}

Fault expected(std::string_view what, const toml::node& found) {
  return invalid(fmt::format("expected {}, found {}", what, kind_of(found)));
}

} // namespace

Result<std::string> as_text(const toml::node& node) {
  const auto* text = node.as_string();
  if (text == nullptr) return expected("text in quotes", node);
  if (text->get().empty()) return invalid("must not be empty; leave it out for the default");
  return text->get();
}

Result<std::vector<std::string>> as_texts(const toml::node& node) {
  std::vector<std::string> texts;
  if (node.is_string()) {
    auto text = as_text(node);
    if (!text) return std::move(text).fault();
    texts.push_back(std::move(text).value());
    return texts;
  }
  const toml::array* list = node.as_array();
  if (list == nullptr) return expected("text in quotes or a list of such", node);
  for (const toml::node& item : *list) {
    auto text = as_text(item);
    if (!text) return std::move(text).fault();
    texts.push_back(std::move(text).value());
  }
  return texts;
}

Result<bool> as_switch(const toml::node& node) {
  const auto* value = node.as_boolean();
  if (value == nullptr) return expected("true or false, without quotes", node);
  return value->get();
}

Result<std::int64_t> as_whole_number(const toml::node& node, std::int64_t least, std::int64_t most) {
  const auto* value = node.as_integer();
  if (value == nullptr) return expected("a whole number, without quotes", node);
  if (value->get() < least || value->get() > most)
    return invalid(fmt::format("{} is out of range: {} to {} is allowed", value->get(), least, most));
  return value->get();
}

Result<Millis> as_duration(const toml::node& node, Millis least) {
  const auto* text = node.as_string();
  if (text == nullptr) return expected("a duration in quotes, as in \"60s\"", node);
  auto duration = parse_duration(text->get());
  if (!duration) return duration;
  if (*duration < least || *duration > kLongestDuration)
    return invalid(fmt::format("\"{}\" is out of range: {} to {} is allowed", text->get(), format_duration(least),
                               format_duration(kLongestDuration)));
  return duration;
}

Result<std::uint64_t> as_bytes(const toml::node& node) {
  if (const auto* text = node.as_string()) return parse_bytes(text->get());
  if (!node.is_integer()) return expected("a size, as in \"8MiB\" or 8388608", node);
  const auto number = as_whole_number(node, 0, std::numeric_limits<std::int64_t>::max());
  if (!number) return number.fault();
  return static_cast<std::uint64_t>(*number);
}

Result<double> as_part(const toml::node& node) {
  const auto* text = node.as_string();
  if (text == nullptr || !text->get().ends_with('%')) return expected("a part in quotes, as in \"25%\"", node);
  const std::string& written = text->get();
  double percent = 0;
  const auto [end, error] = std::from_chars(written.data(), written.data() + written.size() - 1, percent);
  if (error != std::errc{} || end != written.data() + written.size() - 1)
    return invalid(fmt::format("\"{}\" is not a part: write a number and %, as in \"25%\"", written));
  if (!(percent > 0 && percent <= 100))
    return invalid(fmt::format("\"{}\" is out of range: more than 0% and at most 100% is allowed", written));
  return percent / 100;
}

Result<double> as_rate(const toml::node& node) {
  const auto text = as_text(node);
  if (!text) return text.fault();
  return parse_rate(*text);
}

Result<double> as_burst(const toml::node& node) {
  // A larger burst would not limit anything.
  static constexpr std::int64_t kMostAtOnce = 1'000'000;
  const auto count = as_whole_number(node, 1, kMostAtOnce);
  if (!count) return count.fault();
  return static_cast<double>(*count);
}

} // namespace oncekey
