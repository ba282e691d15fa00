// reload_rules: what of a changed configuration a running gateway can take on.
#pragma once

#include "config/findings.h"

#include <string>
#include <vector>

namespace oncekey {

struct ConfigChanges {
  std::vector<std::string> reloadable;   // "log_level", "route /v1/*: lease"
  std::vector<std::string> need_restart; // the same, for what is only read at start
};

// Compares what was written, and the secrets that were read from elsewhere. A setting that is not known to be
// reloadable needs a restart: none is ever ignored. Whether keys would be forgotten is for identity_rules.h to say.
ConfigChanges changes_between(const ReadConfig& running, const ReadConfig& next);

} // namespace oncekey
