// Time is an argument everywhere in Oncekey: nothing in the core asks what time it is.
#pragma once

#include <chrono>

namespace oncekey {

// A point on a store's clock, in milliseconds. Comparable only with other points of the same store.
using Time = std::chrono::sys_time<std::chrono::milliseconds>;
using Millis = std::chrono::milliseconds;

} // namespace oncekey
