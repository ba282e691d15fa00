#include "store/rocksdb/unsettled.h"

#include "core/codec_parts.h"
#include "store/common/listing.h"
#include "store/rocksdb/database.h"

#include <algorithm>

namespace oncekey {
namespace {

bool is_abandoned(const UnsettledKey& key, Time now) {
  return key.state == RecordState::in_progress && now >= key.lease_until && !key.rerun;
}

bool is_wanted(KeysShown shown, const UnsettledKey& key, Time now) {
  const bool held = key.state == RecordState::indeterminate;
  if (shown == KeysShown::indeterminate) return held;
  if (shown == KeysShown::abandoned) return is_abandoned(key, now);
  return held || is_abandoned(key, now);
}

} // namespace

void Unsettled::start_with(UnsettledKeys found) {
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

rocksdb::Status Unsettled::note(const RecordId& id, const Record* record, rocksdb::WriteBatch& batch) {
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

rocksdb::Status Unsettled::note_old(Time now, std::size_t at_most, rocksdb::WriteBatch& batch) {
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

rocksdb::Status Unsettled::save(Time now, rocksdb::WriteBatch& batch) {
  const std::lock_guard lock(mutex_);
  Time until = now - kYoung;
  if (!young_.empty()) until = std::min(until, young_.front().first - Millis{1});
  noted_until_ = std::max(noted_until_, until);
  std::string bytes;
  codec::put_time(bytes, noted_until_);
  return batch.Put(slice_of(kNotedKey), bytes);
}

WaitingKeys Unsettled::count(Time now) {
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
    if (is_abandoned(key, now)) ++counted.abandoned;
    ++at;
  }
  return counted;
}

Unsettled::Waiting Unsettled::waiting(const BrowseRequest& request, Time now) const {
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
      if (now < key.expires_at && is_wanted(request.shown, key, now) && comes_after(request.after, place))
        found.places.push_back(place);
    }
  }
  std::sort(found.places.begin(), found.places.end(), newer);
  return found;
}

} // namespace oncekey
