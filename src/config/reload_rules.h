// reload_rules: which changes of the configuration a running gateway can apply.
#pragma once

#include "config/load.h"

#include <string>
#include <vector>

namespace oncekey {

struct ConfigChanges {
  std::vector<std::string> reloadable;   // "log_level", "route /v1/*: lease"
  std::vector<std::string> need_restart; // the same, for what is only read at start
};

// Compares the settings of both files, and the secrets that they name. A setting that is not known to be reloadable
// needs a restart; none is ignored. Whether keys would be lost is decided by identity_rules.h.
ConfigChanges changes_between(const ReadConfig& running, const ReadConfig& next);

} // namespace oncekey
