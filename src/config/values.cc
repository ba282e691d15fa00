// TOML nodes as the types of settings.
#include "base/durations.h"
#include "config/settings.h"
#include "config/suggestion.h"

#include <charconv>
#include <system_error>

namespace oncekey {
namespace {

// Longer than any useful setting. The bound keeps sums of times far from overflow.
constexpr Millis kLongestDuration = std::chrono::hours(24 * 366);

// In the order of toml::node_type.
constexpr std::string_view kNodeKinds[] = {"nothing",        "a table",       "a list",        "text",
                                           "a whole number", "a fraction",    "true or false", "a date or time",
                                           "a date or time", "a date or time"};
static_assert(static_cast<std::size_t>(toml::node_type::date_time) + 1 == std::size(kNodeKinds));

} // namespace

Fault expected(std::string_view what, const Node& found) {
  return invalid("expected {}, found {}", what, kNodeKinds[static_cast<std::size_t>(found.type())]);
}

Result<std::string> as_text(const Node& node) {
  const auto* text = node.as_string();
  if (text == nullptr) return expected("text in quotes", node);
  if (text->get().empty()) return invalid("must not be empty; leave it out for the default");
  return text->get();
}

Result<std::string> as_one_of(const Node& node, std::span<const std::string_view> words) {
  auto text = as_text(node);
  if (!text || std::find(words.begin(), words.end(), *text) != words.end()) return text;
  return invalid("\"{}\" is not one of \"{}\"{}", *text, fmt::join(words, "\", \""), did_you_mean(*text, words));
}

Result<std::vector<std::string>> as_texts(const Node& node) {
  return as_list<std::string>(
      node, [](std::string_view text) { return Result(std::string(text)); }, Twice::allowed);
}

Result<bool> as_switch(const Node& node) {
  const auto* value = node.as_boolean();
  if (value == nullptr) return expected("true or false, without quotes", node);
  return value->get();
}

Result<std::int64_t> as_whole_number(const Node& node, std::int64_t least, std::int64_t most) {
  const auto* value = node.as_integer();
  if (value == nullptr) return expected("a whole number, without quotes", node);
  if (value->get() < least || value->get() > most)
    return invalid("{} is out of range: {} to {} is allowed", value->get(), least, most);
  return value->get();
}

Result<Millis> as_duration(const Node& node, Millis least) {
  const auto* text = node.as_string();
  if (text == nullptr) return expected("a duration in quotes, as in \"60s\"", node);
  auto duration = parse_duration(text->get());
  if (!duration) return duration;
  if (*duration < least || *duration > kLongestDuration)
    return invalid("\"{}\" is out of range: {} to {} is allowed", text->get(), format_duration(least),
                   format_duration(kLongestDuration));
  return duration;
}

Result<std::uint64_t> as_bytes(const Node& node) {
  if (const auto* text = node.as_string()) return parse_bytes(text->get());
  if (!node.is_integer()) return expected("a size, as in \"8MiB\" or 8388608", node);
  std::uint64_t bytes = 0;
  const Status read = put_count(bytes, node, 0, std::numeric_limits<std::int64_t>::max());
  return read ? Result(bytes) : read.fault();
}

Result<double> as_part(const Node& node) {
  const auto* text = node.as_string();
  if (text == nullptr || !text->get().ends_with('%')) return expected("a part in quotes, as in \"25%\"", node);
  const std::string& written = text->get();
  double percent = 0;
  const auto [end, error] = std::from_chars(written.data(), written.data() + written.size() - 1, percent);
  if (error != std::errc{} || end != written.data() + written.size() - 1)
    return invalid("\"{}\" is not a part: write a number and %, as in \"25%\"", written);
  if (!(percent > 0 && percent <= 100))
    return invalid("\"{}\" is out of range: more than 0% and at most 100% is allowed", written);
  return percent / 100;
}

Result<double> as_burst(const Node& node) {
  // A larger burst would not limit anything.
  static constexpr std::int64_t kMostAtOnce = 1'000'000;
  double burst = 0;
  const Status read = put_count(burst, node, 1, kMostAtOnce);
  return read ? Result(burst) : read.fault();
}

} // namespace oncekey
