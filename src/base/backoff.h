// backoff: how long to wait after a failure before the next try.
//
// After n failed tries: min(initial * 2^n, longest), of which half to all is taken by chance, and never less than
// `initial`. So the first wait is spread over a range already (initial to twice that): a thousand clients that lost a
// server at one moment do not come back at one.
#pragma once

#include "base/crypto.h"

#include <oncekey/time.h>

#include <algorithm>

namespace oncekey {

// `failures` counts the tries that failed in a row, from 1; `chance` is from 0 to less than 1.
template <class Duration>
Duration pause_after(std::uint32_t failures, Duration initial, Duration longest, double chance) {
  Duration most = initial;
  for (std::uint32_t n = 0; n < failures && most < longest; ++n) most *= 2;
  most = std::min(most, longest);
  const double jittered = static_cast<double>(most.count()) * (0.5 + 0.5 * chance);
  return std::max(Duration(static_cast<typename Duration::rep>(jittered)), initial);
}

// The pause above where the server may have said how long to stay away. Clients that were told the same second come
// back spread over as long a range as their backoff would have spread them.
inline Millis lengthened(Millis pause, Millis initial, std::optional<Millis> retry_after, Millis retry_after_max) {
  if (!retry_after) return pause;
  return std::max(pause, std::clamp(*retry_after, Millis(0), retry_after_max) + (pause - initial));
}

// The pauses between the tries of one thing, such as reconnecting to one server.
class Backoff {
 public:
  Backoff(Millis initial, Millis longest) : initial_(initial), longest_(longest) {}

  // After another failure.
  Millis next() { return pause_after(++failures_, initial_, longest_, random_chance()); }
  // After a success that lasted.
  void reset() { failures_ = 0; }

 private:
  Millis initial_;
  Millis longest_;
  std::uint32_t failures_ = 0;
};

} // namespace oncekey
