#include "store/rocksdb/buckets.h"

#include "store/rocksdb/rocksdb_fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace oncekey {
namespace {

const Bucket* find_in(const BucketList& list, const BucketId& id) {
  const auto at = std::find_if(list.begin(), list.end(), [&](const Bucket& bucket) { return bucket.id == id; });
  return at == list.end() ? nullptr : &*at;
}

void sort_newest_first(BucketList& list) {
  std::sort(list.begin(), list.end(), [](const Bucket& a, const Bucket& b) { return a.id.end() > b.id.end(); });
}

Fault damaged(const RecordId& id, const BucketId& bucket, const Fault& fault) {
  return Fault{fault.kind, fmt::format("record {} in {}: {}", short_hash(id), to_string(bucket), fault.message)};
}

} // namespace

Buckets::Buckets(rocksdb::DB& db, rocksdb::ColumnFamilyOptions options, BucketList found)
    : db_(db), options_(std::move(options)) {
  sort_newest_first(found);
  list_ = std::make_shared<const BucketList>(std::move(found));
}

std::shared_ptr<const BucketList> Buckets::live() const {
  const std::lock_guard lock(list_mutex_);
  return list_;
}

Result<std::optional<Stored>> Buckets::lookup(const RecordId& id, DecodeBody body) const {
  const std::shared_ptr<const BucketList> list = live();
  for (const Bucket& bucket : *list) {
    rocksdb::PinnableSlice value;
    const rocksdb::Status read = db_.Get(read_options_, bucket.family.get(), key_slice(id), &value);
    if (read.IsNotFound()) continue;
    if (!read.ok()) return damaged(id, bucket.id, fault_of(read, "could not be read"));
    Result<Record> record = decode_record({value.data(), value.size()}, body);
    if (!record) return damaged(id, bucket.id, record.fault());
    return std::optional<Stored>(Stored{*std::move(record), bucket.id});
  }
  return std::optional<Stored>{};
}

Result<Bucket> Buckets::ensure(const BucketId& id) {
  if (const Bucket* bucket = find_in(*live(), id)) return *bucket;
  const std::lock_guard creating(creating_);
  if (const Bucket* bucket = find_in(*live(), id)) return *bucket;

  rocksdb::ColumnFamilyHandle* handle = nullptr;
  const rocksdb::Status created = db_.CreateColumnFamily(options_, to_string(id), &handle);
  if (!created.ok()) return fault_of(created, "a new bucket could not be created");
  const auto destroy = [this](rocksdb::ColumnFamilyHandle* family) { db_.DestroyColumnFamilyHandle(family); };
  Bucket bucket{id, {handle, destroy}};

  const std::lock_guard lock(list_mutex_);
  BucketList list = *list_;
  list.push_back(bucket);
  sort_newest_first(list);
  list_ = std::make_shared<const BucketList>(std::move(list));
  return bucket;
}

Result<std::size_t> Buckets::drop_ended(Time now) {
  BucketList ended;
  {
    const std::unique_lock no_batch = pin();
    const std::lock_guard lock(list_mutex_);
    BucketList staying;
    for (const Bucket& bucket : *list_) (bucket.id.end() <= now ? ended : staying).push_back(bucket);
    if (ended.empty()) return std::size_t{0};
    list_ = std::make_shared<const BucketList>(std::move(staying));
  }
  // No lookup finds them any more. After a crash before the drop is durable, the next start drops them.
  for (const Bucket& bucket : ended) {
    const rocksdb::Status dropped = db_.DropColumnFamily(bucket.family.get());
    if (!dropped.ok()) return fault_of(dropped, "an expired bucket could not be dropped");
  }
  return ended.size();
}

} // namespace oncekey
