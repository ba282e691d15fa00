// MemoryWatch: notices that a shared store has forgotten.
//
// A flushed Redis, a restored backup or a failover to a replica that lagged behind looks like a store that is well and
// merely empty, or a little younger: every retry of what it forgot would be executed a second time. So each store keeps
// a marker: the generation it was created with, and a tick that its gateways count up about once a second. A gateway
// that finds the marker gone, of another generation, or with a smaller tick than it has seen, knows that memory was
// lost.
//
// From then on claims are refused until an operator has looked and said so (`oncekey store accept-loss`), which writes
// a marker that replaces the one before. Nothing else makes up for what is gone: the operator knows which payments to
// check, we do not.
#pragma once

#include <oncekey/result.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace oncekey {

struct Marker {
  // Random, made when the store was created.
  std::string generation;
  // The generation whose loss an operator accepted when this one was made; "*" for whatever was lost.
  std::string replaces;
  std::uint64_t tick = 0;
  // A gateway has noticed a loss that no operator has accepted yet: gateways that start now must refuse as well.
  bool lost = false;
};

inline constexpr std::string_view kReplacesAny = "*";

// Safe to use from several threads.
class MemoryWatch {
 public:
  // What was just read of the marker at `place`: a store that is spread over several servers has one for each part, all
  // of one generation with ticks of their own. Nothing when there is none.
  // A fault, the same as memory() gives from now on, when this shows that memory was lost.
  Status see(std::size_t place, const std::optional<Marker>& marker);

  // A fault that says what was lost and what to do, until a marker is seen that makes up for it.
  Status memory() const;

  // The generation in use; empty before the first marker was seen.
  std::string generation() const;

 private:
  Status lose(std::string what);

  mutable std::mutex mutex_;
  std::string generation_;
  std::map<std::size_t, std::uint64_t> ticks_; // the largest seen at each place
  std::optional<Fault> lost_;
};

} // namespace oncekey
