// Storms: which keys are retried again and again, now.
//
// Counts retries by key over stretches of time and remembers the hottest keys only, in a fixed amount of memory: when a
// shard is full, a new key takes the place and the count of its coldest one (the space-saving sketch). So a count may
// be too high for a key that is not hot, and is never too low for one that is.
#pragma once

#include "gateway/sharded.h"

#include <oncekey/record.h>

#include <cstddef>

namespace oncekey {

class Storms {
 public:
  using Instant = std::chrono::steady_clock::time_point;
  // What clients with sane backoff do not reach: ten tries of one operation within ten seconds.
  static constexpr std::chrono::seconds kStretch{10};
  static constexpr std::uint64_t kStormRetries = 10;
  static constexpr std::size_t kKeysMax = 1024;

  struct HotKey {
    RecordId id;
    std::size_t route = 0;
    std::uint64_t retries = 0; // within a stretch: the one under way or the one before, whichever had more
  };

  // From any thread.
  void retried(const RecordId& id, std::size_t route, Instant now);

  // Those with the most retries first.
  std::vector<HotKey> hottest(Instant now) const;

 private:
  static constexpr std::size_t kShards = 16;
  static constexpr std::size_t kShardKeys = kKeysMax / kShards;

  struct Counts {
    Instant began{};
    std::vector<HotKey> now;
    std::vector<HotKey> before;
  };
  Sharded<Counts, kShards> counts_;
};

} // namespace oncekey
