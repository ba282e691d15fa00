// Buckets: the column families that records live in, one for each stretch of expiry. Jobs have families of their own.
//
// A record is in one bucket at most. A lookup asks the live buckets that may have it, the one that ends last first.
// Buckets are made when the first segment with records for them is sealed, and dropped whole when their stretch is
// over.
//
// Threads. Readers take the list of live buckets as a whole and keep it while they read: a bucket dropped meanwhile
// stays readable until the last list with it is let go.
#pragma once

#include "core/bucket.h"
#include "store/journal/database.h"
#include "store/journal/known_ids.h"

#include <fmt/format.h>
#include <oncekey/record.h>
#include <oncekey/result.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace oncekey {

struct Bucket {
  BucketId id;
  std::shared_ptr<rocksdb::ColumnFamilyHandle> family;
  std::shared_ptr<KnownIds> known{}; // null where the keys are not ids
};

// The bucket that ends last comes first.
using BucketList = std::vector<Bucket>;

// Null if it is not in the list.
inline const Bucket* find_in(const BucketList& list, const BucketId& id) {
  const auto at = std::find_if(list.begin(), list.end(), [&](const Bucket& bucket) { return bucket.id == id; });
  return at == list.end() ? nullptr : &*at;
}

// What the names of the jobs' families begin with.
inline constexpr std::string_view kJobFamilies = "job-";

// The whole bytes that a prefix of hex digits begins with: where in the order of ids a listing can start and end.
inline std::string bytes_of_prefix(std::string_view hex) {
  const std::string padded = std::string(hex.substr(0, hex.size() / 2 * 2)).append(64, '0').substr(0, 64);
  const std::optional<RecordId> id = record_id_from_hex(padded);
  if (!id) return {}; // not hex: nothing matches, found out record by record
  const rocksdb::Slice slice = key_slice(*id);
  return std::string(slice.data(), std::min<std::size_t>(hex.size() / 2, slice.size()));
}

class Buckets {
 public:
  enum class Keys { ids, others };
  // `found` are the families with this prefix that the database had when it was opened. The database outlives this
  // object.
  Buckets(rocksdb::DB& db, rocksdb::ColumnFamilyOptions options, std::string_view name_prefix, Keys keys,
          BucketList found)
      : db_(db), options_(std::move(options)), name_prefix_(name_prefix), keys_(keys) {
    for (Bucket& bucket : found) bucket.known = known_ids(KnownIds::Complete::no);
    sort_newest_first(found);
    list_ = std::make_shared<const BucketList>(std::move(found));
  }

  std::shared_ptr<const BucketList> live() const {
    const std::lock_guard lock(list_mutex_);
    return list_;
  }

  // The bytes under a key, and the bucket they are in; nothing if there are none.
  Result<std::optional<BucketId>> get(const rocksdb::Slice& key, rocksdb::PinnableSlice& value) const {
    const std::shared_ptr<const BucketList> list = live();
    for (const Bucket& bucket : *list) {
      if (bucket.known && !bucket.known->may_have(key.ToStringView())) continue;
      const rocksdb::Status read = db_.Get(read_options_, bucket.family.get(), key, &value);
      if (read.ok()) return std::optional(bucket.id);
      if (!read.IsNotFound()) return fault_of(read, to_string(bucket.id) + " could not be read");
      value.Reset();
    }
    return std::optional<BucketId>{};
  }

  // Visits the keys that begin with the prefix, bucket by bucket.
  Status scan_all(std::string_view prefix, std::string_view what_failed, const Visit& visit) const {
    const std::shared_ptr<const BucketList> list = live();
    for (const Bucket& bucket : *list) {
      const Result<bool> more = scan(db_, bucket.family.get(), prefix, what_failed, visit);
      if (!more) return more.fault();
      if (!*more) break;
    }
    return ok_status();
  }

  // The live bucket of that id, made now if there is none. One thread calls it, the sealer.
  Result<Bucket> ensure(const BucketId& id) {
    if (const Bucket* bucket = find_in(*live(), id)) return *bucket;
    rocksdb::ColumnFamilyHandle* handle = nullptr;
    const rocksdb::Status created = db_.CreateColumnFamily(options_, name_prefix_ + to_string(id), &handle);
    if (!created.ok()) return fault_of(created, "a new bucket could not be created");
    const auto destroy = [this](rocksdb::ColumnFamilyHandle* family) { db_.DestroyColumnFamilyHandle(family); };
    Bucket bucket{id, {handle, destroy}, known_ids(KnownIds::Complete::yes)};

    const std::lock_guard lock(list_mutex_);
    BucketList list = *list_;
    list.push_back(bucket);
    sort_newest_first(list);
    list_ = std::make_shared<const BucketList>(std::move(list));
    return bucket;
  }

  // Reads which ids the buckets have that were found. A bucket that cannot tell is asked for every id.
  Status load_known_ids(const std::stop_token& stop) {
    const std::shared_ptr<const BucketList> list = live();
    Status loaded = ok_status();
    for (const Bucket& bucket : *list) {
      if (!bucket.known) continue;
      if (Status one = bucket.known->load(db_, bucket.family.get(), stop); !one) loaded = std::move(one);
    }
    return loaded;
  }

  // Drops every bucket whose stretch is over; returns how many. Not while a segment is sealed.
  Result<std::size_t> drop_ended(Time now) {
    {
      const std::lock_guard lock(list_mutex_);
      BucketList staying;
      for (const Bucket& bucket : *list_) (bucket.id.end() <= now ? ended_ : staying).push_back(bucket);
      if (ended_.empty()) return std::size_t{0};
      list_ = std::make_shared<const BucketList>(std::move(staying));
    }
    // No lookup finds them any more. After a crash before the drop is durable, the next start drops them.
    std::size_t dropped = 0;
    for (; !ended_.empty(); ++dropped) {
      const rocksdb::Status gone = db_.DropColumnFamily(ended_.back().family.get());
      if (!gone.ok()) {
        db_.Resume();
        return fault_of(gone, "an expired bucket could not be dropped"); // the next round tries again
      }
      ended_.pop_back();
    }
    return dropped;
  }

 private:
  std::shared_ptr<KnownIds> known_ids(KnownIds::Complete complete) const {
    return keys_ == Keys::ids ? std::make_shared<KnownIds>(complete) : nullptr;
  }
  static void sort_newest_first(BucketList& list) {
    std::sort(list.begin(), list.end(), [](const Bucket& a, const Bucket& b) { return a.id.end() > b.id.end(); });
  }

  rocksdb::DB& db_;
  const rocksdb::ColumnFamilyOptions options_;
  const std::string name_prefix_;
  const Keys keys_;
  const rocksdb::ReadOptions read_options_;
  BucketList ended_; // to be dropped; of the thread that drops
  mutable std::mutex list_mutex_;
  std::shared_ptr<const BucketList> list_;
};

} // namespace oncekey
