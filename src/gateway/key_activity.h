// KeyActivity: what became of the retries of recent keys: how many were replayed, refused as another request, found the
// first one at work, or found it held; and when. For the console; a replay writes nothing to the store.
//
// A table of fixed size (about 1 MiB when it is full): a new key takes the place of the one in its row that was quiet
// for longest. Since the start of this process, and of this gateway alone.
#pragma once

#include "gateway/sharded.h"

#include <oncekey/record.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace oncekey {

class KeyActivity {
 public:
  using WallTime = std::chrono::system_clock::time_point;
  enum class Kind { replay, mismatch, in_progress, held };
  static constexpr std::size_t kKinds = 4;
  static constexpr std::size_t kKeysMax = 16 * 1024;

  struct Seen {
    std::array<std::uint32_t, kKinds> counts{};
    std::array<WallTime, kKinds> last{}; // of each kind
    WallTime first{};                    // of any
    std::uint32_t count(Kind kind) const { return counts[static_cast<std::size_t>(kind)]; }
    WallTime last_of(Kind kind) const { return last[static_cast<std::size_t>(kind)]; }
  };

  // From any thread.
  void saw(const RecordId& id, Kind kind, WallTime now);
  // Nothing if the key was not retried, or long ago.
  std::optional<Seen> find(const RecordId& id) const;

 private:
  static constexpr std::size_t kShards = 16;
  static constexpr std::size_t kWays = 4;
  static constexpr std::size_t kShardKeys = kKeysMax / kShards;
  struct Entry {
    RecordId id;
    Seen seen;
    WallTime last{};
  };
  using Table = std::vector<Entry>; // empty before the first retry
  static std::size_t row_of(const RecordId& id);

  Sharded<Table, kShards> tables_;
};

} // namespace oncekey
