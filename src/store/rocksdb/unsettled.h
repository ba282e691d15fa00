// Unsettled: the keys that are in progress or indeterminate, so that those that wait for a person are found without
// looking at every record.
//
// Kept in memory, and on disk in a way that costs most executions nothing: only a key that is still unsettled a while
// after its claim (kYoung) gets an entry in the database, which is removed when it is settled. "noted" says up to which
// time of claims that was done. After a crash the entries and the claims since then (time_index.h) are all there can
// be.
//
//   "unsettled/" id:32 bytes, with no value
//   "noted"      u64, milliseconds
//
// Holds about a hundred bytes for each.
#pragma once

#include "core/store.h"

#include <oncekey/record.h>

#include <rocksdb/write_batch.h>

#include <cstddef>
#include <deque>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace oncekey {

inline constexpr std::string_view kUnsettledPrefix = "unsettled/";
inline constexpr std::string_view kNotedKey = "noted";

struct UnsettledKey {
  RecordState state = RecordState::in_progress;
  bool rerun = false;
  bool on_disk = false;
  Time first_received{};
  Time lease_until{};
  Time expires_at{};

  static UnsettledKey of(const Record& record, bool on_disk) {
    return {record.state, record.rerun, on_disk, record.first_received, record.lease_until, record.expires_at};
  }
};

// What the database has.
struct UnsettledKeys {
  std::vector<std::pair<RecordId, UnsettledKey>> keys;
  Time noted_until{};
};

// Any thread may call; the parts with a batch are the writer's.
class Unsettled {
 public:
  // Most calls are over by then.
  static constexpr Millis kYoung{2000};

  void start_with(UnsettledKeys found);

  // The record as it is from now on; nothing if it is gone. What the entry on disk needs is added to the batch.
  rocksdb::Status note(const RecordId& id, const Record* record, rocksdb::WriteBatch& batch);
  // Makes entries for up to `at_most` keys that are no longer young, and removes those of keys that have expired.
  rocksdb::Status note_old(Time now, std::size_t at_most, rocksdb::WriteBatch& batch);
  // Saves how far that has come.
  rocksdb::Status save(Time now, rocksdb::WriteBatch& batch);

  // Looks at kWaitingCountMax keys at most.
  WaitingKeys count(Time now);
  struct Waiting {
    std::vector<BrowsePlace> places; // newest first
    bool all = true;                 // false if there were more keys than were looked at
  };
  Waiting waiting(const BrowseRequest& request, Time now) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<RecordId, UnsettledKey> keys_;
  std::deque<std::pair<Time, RecordId>> young_; // by time of claim; some are settled
  std::vector<RecordId> expired_;               // to be removed from disk
  Time noted_until_{};
};

} // namespace oncekey
