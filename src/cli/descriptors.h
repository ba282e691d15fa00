// descriptors: keeps the process from running out of file descriptors.
//
// A store that cannot open its next log file cannot keep its promises, and no client must be able to cause that. So the
// limits are added up at start and compared with what the system allows. Limits that do not fit are lowered before
// anything listens.
#pragma once

#include "base/log.h"
#include "config/config.h"

#include <cstddef>

namespace oncekey {

// Connections of operators, and of the application at the outbox: few, and each listener has its own count.
inline constexpr std::uint32_t kAdminConnectionsMax = 128;

// Raises the soft limit to the hard one, and lowers limits.max_connections and limits.max_upstream_connections where
// they do not fit, with a line in the log. A fault when too few connections would be left.
Status fit_descriptors(Config& config, std::size_t threads, Log& log);

} // namespace oncekey
