// flags: `oncekey serve` without a file.
//
// The flags have the names of the settings, with dashes, and make a single route for every path. Together with --config
// only the flags that say where this process listens, forwards and stores are accepted; they override the file. The
// others are refused: a reader of the file would have a wrong idea of what is protected.
#pragma once

#include "config/config.h"
#include "config/findings.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace oncekey {

// As given on the command line, unparsed. Nothing: the flag was not given.
struct ServeFlags {
  std::optional<std::string> config; // a file
  std::optional<std::string> listen;
  std::optional<std::string> admin;
  std::optional<std::string> upstream;
  std::optional<std::string> store;

  std::optional<std::string> admin_token; // env:NAME or file:PATH; arguments are visible to every user of the machine
  std::optional<std::string> upstream_ca;
  std::optional<std::string> tls_cert;
  std::optional<std::string> tls_key;
  std::optional<std::string> require_durability;
  std::optional<std::uint32_t> threads;
  std::optional<std::string> log_level;
  std::optional<std::string> drain_timeout;
  std::optional<std::string> policy;
  std::vector<std::string> scope; // several make a list
  std::optional<std::string> lease;
  std::optional<std::string> retention;
  std::optional<std::string> upstream_timeout;
  std::optional<std::string> wait;

  // Start although keys in the store would be forgotten (config/identity_rules.h).
  bool accept_identity_change = false;
};

// Parsed and checked like a file. Findings about a flag have its name in front.
ReadConfig read_config(const ServeFlags& flags, NamedFiles files);
// The same as a configuration, or a fault with one line for each finding. The files it names are not checked.
Result<Config> config_from_flags(const ServeFlags& flags);

} // namespace oncekey
