#include "store/rocksdb/buckets.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace oncekey {
namespace {

// A bucket is made this long before its first record, or an eighth of its width if that is less.
constexpr Millis kMadeAheadMax{60'000};

void sort_newest_first(BucketList& list) {
  std::sort(list.begin(), list.end(), [](const Bucket& a, const Bucket& b) { return a.id.end() > b.id.end(); });
}

} // namespace

const Bucket* find_in(const BucketList& list, const BucketId& id) {
  const auto at = std::find_if(list.begin(), list.end(), [&](const Bucket& bucket) { return bucket.id == id; });
  return at == list.end() ? nullptr : &*at;
}

std::string bytes_of_prefix(std::string_view hex) {
  const std::string padded = std::string(hex.substr(0, hex.size() / 2 * 2)).append(64, '0').substr(0, 64);
  const std::optional<RecordId> id = record_id_from_hex(padded);
  if (!id) return {}; // not hex: nothing matches, found out record by record
  const rocksdb::Slice slice = key_slice(*id);
  return std::string(slice.data(), std::min<std::size_t>(hex.size() / 2, slice.size()));
}

Buckets::Buckets(rocksdb::DB& db, rocksdb::ColumnFamilyOptions options, std::string_view name_prefix, BucketList found)
    : db_(db), options_(std::move(options)), name_prefix_(name_prefix) {
  sort_newest_first(found);
  list_ = std::make_shared<const BucketList>(std::move(found));
}

std::shared_ptr<const BucketList> Buckets::live() const {
  const std::lock_guard lock(list_mutex_);
  return list_;
}

Result<std::optional<Stored>> Buckets::lookup(const RecordId& id, DecodeBody body) const {
  rocksdb::PinnableSlice value;
  const Result<std::optional<BucketId>> bucket = get(key_slice(id), value);
  if (!bucket) return Fault{bucket.fault().kind, fmt::format("record {}: {}", short_hash(id), bucket.fault().message)};
  if (!*bucket) return std::optional<Stored>{};
  Result<Record> record = decode_record({value.data(), value.size()}, body);
  if (!record) {
    return Fault{record.fault().kind,
                 fmt::format("record {} in {}: {}", short_hash(id), to_string(**bucket), record.fault().message)};
  }
  return std::optional<Stored>(Stored{*std::move(record), **bucket});
}

Result<std::optional<BucketId>> Buckets::get(const rocksdb::Slice& key, rocksdb::PinnableSlice& value) const {
  const std::shared_ptr<const BucketList> list = live();
  for (const Bucket& bucket : *list) {
    const rocksdb::Status read = db_.Get(read_options_, bucket.family.get(), key, &value);
    if (read.ok()) return std::optional(bucket.id);
    if (!read.IsNotFound()) return fault_of(read, to_string(bucket.id) + " could not be read");
    value.Reset();
  }
  return std::optional<BucketId>{};
}

Status Buckets::scan_all(std::string_view prefix, std::string_view what_failed, const Visit& visit) const {
  const std::shared_ptr<const BucketList> list = live();
  for (const Bucket& bucket : *list) {
    const Result<bool> more = scan(db_, bucket.family.get(), prefix, what_failed, visit);
    if (!more) return more.fault();
    if (!*more) break;
  }
  return ok_status();
}

Result<Bucket> Buckets::ensure(const BucketId& id) {
  if (const Bucket* bucket = find_in(*live(), id)) return *bucket;
  const std::lock_guard creating(creating_);
  if (const Bucket* bucket = find_in(*live(), id)) return *bucket;

  rocksdb::ColumnFamilyHandle* handle = nullptr;
  const rocksdb::Status created = db_.CreateColumnFamily(options_, name_prefix_ + to_string(id), &handle);
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

void Buckets::note_retention(const BucketId& bucket, Millis retention) {
  // Only this thread changes the map, so it may look without the lock.
  const auto longest = retentions_.find(bucket.width_log2);
  if (longest != retentions_.end() && longest->second >= retention) return;
  const std::lock_guard lock(retentions_mutex_);
  retentions_[bucket.width_log2] = retention;
}

Status Buckets::make_ahead(Time now) {
  std::unique_lock lock(retentions_mutex_);
  const std::map<int, Millis> retentions = retentions_;
  lock.unlock();
  for (const auto& [width_log2, retention] : retentions) {
    const Millis ahead = std::min(kMadeAheadMax, Millis{std::int64_t{1} << width_log2} / 8);
    const Result<Bucket> made = ensure(bucket_of(now + retention + ahead, retention));
    if (!made) return made.fault();
  }
  return ok_status();
}

} // namespace oncekey
