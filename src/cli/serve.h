// serve: the gateway as a process.
#pragma once

#include "config/config.h"

namespace oncekey {

// Runs until a signal ends it. The exit code: 0 after a clean drain, 1 when it could not start or was cut short.
int run_serve(Config config);

} // namespace oncekey
