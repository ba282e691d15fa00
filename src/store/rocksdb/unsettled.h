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

#include "core/codec_parts.h"
#include "core/store.h"
#include "store/common/listing.h"
#include "store/rocksdb/database.h"

#include <oncekey/record.h>

#include <rocksdb/write_batch.h>

#include <cstddef>
#include <deque>
#include <mutex>
#include <unordered_map>

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

  bool is_abandoned(Time now) const { return state == RecordState::in_progress && now >= lease_until && !rerun; }
  bool is_shown(KeysShown shown, Time now) const {
    const bool held = state == RecordState::indeterminate;
    if (shown == KeysShown::indeterminate) return held;
    return is_abandoned(now) || (held && shown != KeysShown::abandoned);
  }
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

  void start_with(UnsettledKeys found) {
    const std::lock_guard lock(mutex_);
    keys_.clear();
    young_.clear();
    expired_.clear();
    noted_until_ = found.noted_until;
    for (const auto& [id, key] : found.keys) {
      if (!keys_.emplace(id, key).second || key.on_disk) continue;
      young_.emplace_back(key.first_received, id);
    }
    std::sort(young_.begin(), young_.end());
  }

  // The record as it is from now on; nothing if it is gone. What the entry on disk needs is added to the batch.
  rocksdb::Status note(const RecordId& id, const Record* record, rocksdb::WriteBatch& batch) {
    const std::lock_guard lock(mutex_);
    if (record == nullptr || record->state == RecordState::completed) {
      const auto at = keys_.find(id);
      if (at == keys_.end()) return rocksdb::Status::OK();
      const bool on_disk = at->second.on_disk;
      keys_.erase(at);
      return on_disk ? batch.Delete(key_with_id(kUnsettledPrefix, id)) : rocksdb::Status::OK();
    }
    const auto [at, added] = keys_.try_emplace(id);
    at->second = UnsettledKey::of(*record, at->second.on_disk);
    if (!added) return rocksdb::Status::OK();
    if (record->first_received > noted_until_) {
      young_.emplace_back(record->first_received, id);
      return rocksdb::Status::OK();
    }
    at->second.on_disk = true;
    return batch.Put(key_with_id(kUnsettledPrefix, id), rocksdb::Slice());
  }
  // Makes entries for up to `at_most` keys that are no longer young, and removes those of keys that have expired.
  rocksdb::Status note_old(Time now, std::size_t at_most, rocksdb::WriteBatch& batch) {
    const std::lock_guard lock(mutex_);
    rocksdb::Status added;
    for (std::size_t done = 0; done < at_most && !young_.empty() && young_.front().first <= now - kYoung; ++done) {
      const auto at = keys_.find(young_.front().second);
      if (at != keys_.end() && !at->second.on_disk) {
        added = batch.Put(key_with_id(kUnsettledPrefix, at->first), rocksdb::Slice());
        if (!added.ok()) return added;
        at->second.on_disk = true;
      }
      young_.pop_front();
    }
    for (const RecordId& id : expired_) {
      const auto at = keys_.find(id);
      if (at != keys_.end() && at->second.on_disk) continue; // claimed anew since
      added = batch.Delete(key_with_id(kUnsettledPrefix, id));
      if (!added.ok()) return added;
    }
    expired_.clear();
    return added;
  }
  // Saves how far that has come.
  rocksdb::Status save(Time now, rocksdb::WriteBatch& batch) {
    const std::lock_guard lock(mutex_);
    Time until = now - kYoung;
    if (!young_.empty()) until = std::min(until, young_.front().first - Millis{1});
    noted_until_ = std::max(noted_until_, until);
    std::string bytes;
    codec::field(bytes, noted_until_);
    return batch.Put(slice_of(kNotedKey), bytes);
  }

  // Looks at kWaitingCountMax keys at most.
  WaitingKeys count(Time now) {
    const std::lock_guard lock(mutex_);
    WaitingKeys counted;
    std::uint64_t looked = 0;
    for (auto at = keys_.begin(); at != keys_.end() && looked < kWaitingCountMax; ++looked) {
      const UnsettledKey& key = at->second;
      if (now >= key.expires_at) {
        if (key.on_disk) expired_.push_back(at->first);
        at = keys_.erase(at);
        continue;
      }
      if (key.state == RecordState::indeterminate) ++counted.indeterminate;
      if (key.is_abandoned(now)) ++counted.abandoned;
      ++at;
    }
    return counted;
  }
  struct Waiting {
    std::vector<BrowsePlace> places; // newest first
    bool all = true;                 // false if there were more keys than were looked at
  };
  Waiting waiting(const BrowseRequest& request, Time now) const {
    Waiting found;
    {
      const std::lock_guard lock(mutex_);
      std::size_t looked = 0;
      for (const auto& [id, key] : keys_) {
        if (looked++ == request.look_max) {
          found.all = false;
          break;
        }
        const BrowsePlace place{key.first_received, id};
        if (now < key.expires_at && key.is_shown(request.shown, now) && comes_after(request.after, place))
          found.places.push_back(place);
      }
    }
    std::sort(found.places.begin(), found.places.end(), newer);
    return found;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<RecordId, UnsettledKey> keys_;
  std::deque<std::pair<Time, RecordId>> young_; // by time of claim; some are settled
  std::vector<RecordId> expired_;               // to be removed from disk
  Time noted_until_{};
};

} // namespace oncekey
