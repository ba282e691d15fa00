// Buckets: the column families that records live in, one for each stretch of expiry. Jobs have families of their own.
//
// A record is in one bucket at most. A lookup asks the live buckets, the one that ends last first. Buckets are made
// ahead of need, or by the writer when it needs one that is missing, and dropped whole when their stretch is over.
//
// Threads. Readers take the list of live buckets as a whole and keep it while they read: a bucket dropped meanwhile
// stays readable until the last list with it is let go. The writer pins the list for the length of a batch, so that
// no bucket it writes to is dropped under it.
#pragma once

#include "core/bucket.h"
#include "core/record_codec.h"
#include "store/rocksdb/database.h"

#include <oncekey/record.h>
#include <oncekey/result.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

struct Bucket {
  BucketId id;
  std::shared_ptr<rocksdb::ColumnFamilyHandle> family;
};

// The bucket that ends last comes first.
using BucketList = std::vector<Bucket>;

// A record and where it is kept.
struct Stored {
  Record record;
  BucketId bucket;
};

// Null if it is not in the list.
const Bucket* find_in(const BucketList& list, const BucketId& id);

// What the names of the jobs' families begin with.
inline constexpr std::string_view kJobFamilies = "job-";

// The whole bytes that a prefix of hex digits begins with: where in the order of ids a listing can start and end.
std::string bytes_of_prefix(std::string_view hex);

class Buckets {
 public:
  // `found` are the families with this prefix that the database had when it was opened. The database outlives this
  // object.
  Buckets(rocksdb::DB& db, rocksdb::ColumnFamilyOptions options, std::string_view name_prefix, BucketList found);

  std::shared_ptr<const BucketList> live() const;

  // Expired records are returned like any other, so that a claim can write over them. A record that cannot be read or
  // fails its checksum is a fault, never "absent".
  Result<std::optional<Stored>> lookup(const RecordId& id, DecodeBody body) const;
  // The bytes under a key, and the bucket they are in; nothing if there are none.
  Result<std::optional<BucketId>> get(const rocksdb::Slice& key, rocksdb::PinnableSlice& value) const;

  // Visits the keys that begin with the prefix, bucket by bucket.
  Status scan_all(std::string_view prefix, std::string_view what_failed, const Visit& visit) const;

  // The live bucket of that id, made now if there is none.
  Result<Bucket> ensure(const BucketId& id);

  // While the lock is held no bucket leaves the live list.
  [[nodiscard]] std::unique_lock<std::mutex> pin() { return std::unique_lock(pinned_); }

  // Drops every bucket whose stretch is over; returns how many.
  Result<std::size_t> drop_ended(Time now);

  // Something with this retention goes into the bucket. One thread calls it, the writer's.
  void note_retention(const BucketId& bucket, Millis retention);
  // Makes the buckets that will be needed soon, so that the writer does not have to wait for RocksDB to make one.
  Status make_ahead(Time now);

 private:
  rocksdb::DB& db_;
  const rocksdb::ColumnFamilyOptions options_;
  const std::string name_prefix_;
  const rocksdb::ReadOptions read_options_;
  std::mutex creating_; // one creation at a time; taken before list_mutex_
  std::mutex pinned_;   // taken before list_mutex_
  mutable std::mutex list_mutex_;
  std::shared_ptr<const BucketList> list_;
  std::mutex retentions_mutex_;
  std::map<int, Millis> retentions_; // the longest so far in each class of widths
};

} // namespace oncekey
