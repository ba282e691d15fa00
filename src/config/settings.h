// settings: every name a configuration file may use, and how its value is read.
//
// One table for each place in the file. A setting exists by standing in its table: the reader, the hints for
// misspelled names and the test that docs/CONFIG.md is complete all go by these.
#pragma once

#include "config/load.h"
#include "config/values.h"

#include <span>
#include <string_view>

namespace oncekey {

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
