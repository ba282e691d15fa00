// settings: every name a configuration file may use, and how its value is read.
//
// One table for each place in the file. A setting exists by standing in its table: the reader, the hints for
// misspelled names and the test that docs/CONFIG.md is complete all go by these.
//
// A fault about a value says what was expected and what was found; the reader adds the setting's name and line.
//
// Internal to this room, like everything that sees toml++.
#pragma once

#include "base/faults.h"
#include "config/load.h"

#include <oncekey/time.h>

#include <toml++/toml.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace oncekey {

// A value of the file.
using Node = toml::node;

Fault expected(std::string_view what, const Node& found);

Result<std::string> as_text(const Node& node);
// One of these words.
Result<std::string> as_one_of(const Node& node, std::span<const std::string_view> words);
Result<bool> as_switch(const Node& node);
Result<std::int64_t> as_whole_number(const Node& node, std::int64_t least, std::int64_t most);
// "60s" and the like, from `least` to a year.
Result<Millis> as_duration(const Node& node, Millis least = Millis(0));
// A number of bytes, or text such as "8MiB".
Result<std::uint64_t> as_bytes(const Node& node);
// "25%" and the like, as a part of one: more than none, and no more than all.
Result<double> as_part(const Node& node);
// How many requests at once; a whole number.
Result<double> as_burst(const Node& node);

// What `next` makes of a value that was read, or the value's fault.
template <class T, class Next>
auto and_then(Result<T> read, Next next) -> std::invoke_result_t<Next, T> {
  if (!read) return std::move(read).fault();
  return next(std::move(read).value());
}

template <class T>
Result<T> parsed(const Node& node, Result<T> (*parse)(std::string_view)) {
  return and_then(as_text(node), parse);
}

// A list of texts, or one text for a list of one.
enum class Twice { allowed, refused };
template <class T>
Result<std::vector<T>> as_list(const Node& node, Result<T> (*parse)(std::string_view), Twice twice = Twice::refused) {
  const toml::array* const list = node.as_array();
  if (list == nullptr && !node.is_string()) return expected("text in quotes or a list of such", node);
  std::vector<T> items;
  for (std::size_t i = 0; i < (list == nullptr ? 1 : list->size()); ++i) {
    const auto text = as_text(list == nullptr ? node : (*list)[i]);
    auto item = and_then(text, parse);
    if (!item) return std::move(item).fault();
    if (twice == Twice::refused && std::find(items.begin(), items.end(), *item) != items.end())
      return invalid("\"{}\" stands twice in the list", *text);
    items.push_back(std::move(item).value());
  }
  return items;
}
Result<std::vector<std::string>> as_texts(const Node& node);

// Stores a value that was read, or returns its fault.
template <class Target, class T>
Status put(Target& target, Result<T> read) {
  if (!read) return std::move(read).fault();
  target = std::move(read).value();
  return ok_status();
}

// The same for counts, whose range is that of the target unless a narrower one is given.
template <class Number>
Status put_count(Number& target, const Node& node, std::int64_t least,
                 std::int64_t most = std::numeric_limits<Number>::max()) {
  const auto read = as_whole_number(node, least, most);
  if (read) target = static_cast<Number>(*read);
  return read ? ok_status() : read.fault();
}

template <class Target>
struct Setting {
  std::string_view name;
  Status (*read)(const Node& value, Target& target);
};
template <class Target>
using Settings = std::span<const Setting<Target>>;

Settings<Config> gateway_settings();       // the top of the file
Settings<Limits> limit_settings();         // [limits]
Settings<Timeouts> timeout_settings();     // [timeouts]
Settings<Route> route_settings();          // [[route]], beside those of its policy
Settings<Policy> default_settings();       // [[route]], and the top of the file for all routes
Settings<Policy> policy_settings();        // [[route]] alone
Settings<Webhook> webhook_settings();      // [[webhook]], beside those of its endpoint
Settings<Endpoint> destination_settings(); // [[destination]], beside those of its endpoint
Settings<Endpoint> endpoint_settings();    // [[webhook]] and [[destination]]

template <class Target>
const Setting<Target>* find_setting(Settings<Target> settings, std::string_view name) {
  for (const Setting<Target>& setting : settings)
    if (setting.name == name) return &setting;
  return nullptr;
}

Result<Policy> as_policy(const Node& node);
// `policy` is only checked where it stands: the reader begins every route with it.
template <class Target>
Status check_policy(const Node& node, Target&) {
  return and_then(as_policy(node), [](const Policy&) { return ok_status(); });
}

// "--drain-timeout" for drain_timeout.
std::string as_flag(std::string_view setting);

// From TOML to a Config, collecting every finding on the way instead of stopping at the first. Settings without a
// position (those that flags put into the table) are reported by the flag's name, all others as FILE:LINE.
ReadConfig read_settings(const toml::table& file, std::string_view file_name, NamedFiles files);

} // namespace oncekey
