// serve: the gateway as a process.
#pragma once

#include "config/load.h"

namespace oncekey {

// Runs until a signal ends it. The exit code: 0 after a clean drain, 1 when it could not start or was cut short.
// `read` is what the flags and the file they name say, without findings; SIGHUP reads them again.
int run_serve(const ServeFlags& flags, ReadConfig read);

} // namespace oncekey
