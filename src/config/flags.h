// flags: `oncekey serve` without a file.
//
// The flags have the names of the settings, with dashes, and make a single route for every path. Together with
// --config only the flags that say where this one process listens, forwards and stores are taken, in place of what the
// file says; the others would leave a reader of the file with a wrong idea of what is protected, and are refused.
#pragma once

#include "config/config.h"

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
};

// Parsed and checked like a file. A fault's message has one line a finding, with the flag's name in front.
Result<Config> config_from_flags(const ServeFlags& flags);

} // namespace oncekey
