// settings: every name a configuration file may use, and how its value is read.
//
// One table for each place in the file. A setting exists by standing in its table: the reader, the hints for
// misspelled names and the test that docs/CONFIG.md is complete all go by these.
#pragma once

#include "config/config.h"
#include "config/values.h"

#include <span>
#include <string_view>

namespace oncekey {

// A value of the file.
using Node = toml::node;

template <class Target>
struct Setting {
  std::string_view name;
  Status (*read)(const Node& value, Target& target);
};

std::span<const Setting<Config>> gateway_settings();    // the top of the file
std::span<const Setting<Limits>> limit_settings();      // [limits]
std::span<const Setting<Timeouts>> timeout_settings();  // [timeouts]
std::span<const Setting<Policy>> policy_settings();     // [[route]], beside `path` and `policy`
std::span<const Setting<Webhook>> webhook_settings();   // [[webhook]], beside those of its endpoint
std::span<const Setting<Endpoint>> endpoint_settings(); // [[destination]], and [[webhook]] as well

// The settings of a route that may also stand at the top of the file, as the default of all routes.
bool may_be_a_default(std::string_view policy_setting);

} // namespace oncekey
