// findings: what is wrong with a configuration, one mistake each, in the order of the file.
#pragma once

#include "config/config.h"

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace oncekey {

struct Finding {
  unsigned line = 0;   // in the file; 0 for a flag
  std::string setting; // as spelled in the file; empty where the file as a whole is meant
  std::string text;    // what is wrong and what to do; names the setting or the flag
};

// "FILE:LINE: text", or the text alone where there is no line.
std::string shown(const Finding& finding, std::string_view file_name);

// Whether the files that a configuration names (certificates, keys, accounts, key sets, the store's folder) are looked
// at as well. They are read and nothing is changed, made or locked.
enum class NamedFiles { left_alone, looked_at };

// Every setting that was written down: where ("" for the top, "limits", "route /v1/*") and its name, with its value as
// TOML. Tells what has changed between two readings.
using WrittenSettings = std::map<std::pair<std::string, std::string>, std::string>;

// A configuration that was read: usable only if there are no findings.
struct ReadConfig {
  std::string file_name; // empty for flags alone
  Config config;
  std::vector<Finding> findings;
  WrittenSettings written{};
  std::map<std::string, unsigned> lines{}; // of the settings at the top that stand in the file
};

// The configuration, or a fault with one line a finding.
Result<Config> config_or_fault(ReadConfig read);

} // namespace oncekey
