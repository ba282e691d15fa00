// findings: what is wrong with a configuration: one entry for each mistake, in the order of the file.
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

// Whether the files that a configuration names (certificates, keys, accounts, key sets, the store's folder) are checked
// as well. They are read; nothing is changed, made or locked.
enum class NamedFiles { left_alone, looked_at };

// Every setting of a file: its place ("" for the top, "limits", "route /v1/*") and name, with its value as TOML.
// Compared by a reload, to find what has changed.
using WrittenSettings = std::map<std::pair<std::string, std::string>, std::string>;

// A configuration that was read: usable only if there are no findings.
struct ReadConfig {
  std::string file_name; // empty for flags alone
  Config config;
  std::vector<Finding> findings;
  WrittenSettings written{};
  std::map<std::string, unsigned> lines{}; // of the settings at the top that stand in the file
};

// The configuration, or a fault with one line for each finding.
Result<Config> config_or_fault(ReadConfig read);

} // namespace oncekey
