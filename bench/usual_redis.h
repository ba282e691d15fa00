// The pattern people write by hand on Redis, to measure ours beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace oncekey::bench {

struct UsualRedis {
  std::uint64_t pairs = 0;
  double seconds = 0;
};

// SET key claim NX PX, the work, SET key response PX. Many connections on one event loop, each with one call under way;
// the next call of a connection leaves as soon as the last one is answered. Redis gathers what arrives meanwhile into
// one sync per round of its event loop. Ends after so many pairs or seconds, whichever comes first.
UsualRedis run_usual_redis(const std::string& address, std::size_t connections, std::uint64_t pairs, double seconds);

} // namespace oncekey::bench
