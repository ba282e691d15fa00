#pragma once

#include <oncekey/time.h>

namespace oncekey {

// A point of time on the machine's monotonic clock.
using Deadline = std::chrono::steady_clock::time_point;
inline Deadline deadline_in(Millis from_now) { return std::chrono::steady_clock::now() + from_now; }

} // namespace oncekey
