// load: a configuration from a file, from flags, or both, and what is wrong with it: one finding for each mistake.
//
// The flags of `oncekey serve` have the names of the settings, with dashes, and make a single route for every path.
// Together with --config only the flags that say where this process listens, forwards and stores are accepted; they
// override the file. The others are refused: a reader of the file would have a wrong idea of what is protected.
#pragma once

#include "config/config.h"

#include <cstdint>
#include <map>
#include <optional>
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
  std::vector<Finding> findings; // in the order of the file
  WrittenSettings written{};
  std::map<std::string, unsigned> lines{}; // of the settings at the top that stand in the file
};

// As given on the command line, unparsed.
struct ServeFlags {
  std::optional<std::string> config; // a file
  // The settings of one text, by their names in the file. Nothing: the flag was not given.
  std::map<std::string, std::optional<std::string>> texts;
  std::vector<std::string> scope; // several make a list
  std::optional<std::uint32_t> threads;
  // Start although keys in the store would be forgotten (config/identity_rules.h).
  bool accept_identity_change = false;
  // Take the sockets of the gateway that runs on the same address (cli/handover.h).
  bool take_over = false;
};

// The flags alone, or the file they name with the flags in place of what it says. Findings about a flag have its name
// in front.
ReadConfig read_config(const ServeFlags& flags, NamedFiles files);
// The same for the text of a file.
ReadConfig read_config_text(std::string_view text, std::string_view file_name, NamedFiles files,
                            const ServeFlags& flags = {});

} // namespace oncekey
