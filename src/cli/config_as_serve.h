// config_as_serve: a configuration with every finding that would stop `oncekey serve` before it touches the store.
#pragma once

#include "config/load.h"

namespace oncekey {

// Adds to read_config(), with the files it names, what only other rooms know: the rest of the store's URL with the
// files that it names, and whether `audit_log` is an audit log. Makes and changes nothing.
ReadConfig read_config_as_serve(const ServeFlags& flags);

} // namespace oncekey
