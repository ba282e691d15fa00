// fences: where a store's counter of fences begins.
#pragma once

#include <oncekey/time.h>

#include <cstdint>

namespace oncekey {

// The least fence a counter gives that is opened now: the time in microseconds. A counter that counts claims is far
// behind the clock (it would take a million claims a second to keep up with it), so a counter that has lost its last
// values, or all of them, begins above every value it has given. Stays below 2^53, where Lua's and JSON's whole numbers
// end, until the year 2255.
inline std::uint64_t least_fence(Time now) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count());
}

} // namespace oncekey
