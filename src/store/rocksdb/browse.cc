// How a RocksdbStore shows its keys to people: newest first by its time index, and what is not settled.
#include "core/codec_parts.h"
#include "store/common/listing.h"
#include "store/rocksdb/rocksdb_store.h"
#include "store/rocksdb/time_index.h"

namespace oncekey {
namespace {

// Records looked at in one call, which is answered on the caller's thread: some ten milliseconds where they are in
// memory. The caller goes on from there.
constexpr std::uint64_t kLooksPerCall = 4096;

Fault damaged(const RecordId& id, const Fault& fault) {
  return Fault{fault.kind, "record " + to_hex(id) + ": " + fault.message};
}

// The ids of all buckets' entries, the newest first, a millisecond at a time.
class NewestFirst {
 public:
  NewestFirst(rocksdb::DB& db, std::shared_ptr<const BucketList> live, Time from) : live_(std::move(live)) {
    const std::string start = time_key(from + Millis{1}, 0);
    for (const Bucket& bucket : *live_) {
      at_.emplace_back(db.NewIterator(passing_by(), bucket.family.get()));
      at_.back()->SeekForPrev(start);
      skip_records(*at_.back());
    }
  }

  struct Id {
    RecordId id;
    rocksdb::ColumnFamilyHandle* family;
  };
  // All of the newest millisecond that is left, largest id first; empty at the end.
  std::vector<Id> next(Time& first_received) {
    std::vector<Id> ids;
    bool any = false;
    for (const auto& at : at_) {
      if (!at->Valid()) continue;
      const Time time = time_of_key(at->key().ToStringView());
      if (!any || time > first_received) first_received = time;
      any = true;
    }
    for (std::size_t bucket = 0; any && bucket < at_.size(); ++bucket) {
      rocksdb::Iterator& at = *at_[bucket];
      while (at.Valid() && time_of_key(at.key().ToStringView()) == first_received) {
        for (const RecordId& id : ids_in(at.value().ToStringView())) ids.push_back({id, (*live_)[bucket].family.get()});
        at.Prev();
        skip_records(at);
      }
    }
    std::sort(ids.begin(), ids.end(), [](const Id& a, const Id& b) { return a.id > b.id; });
    return ids;
  }

  rocksdb::Status status() const {
    for (const auto& at : at_) {
      if (!at->status().ok()) return at->status();
    }
    return rocksdb::Status::OK();
  }

 private:
  // Ids are spread evenly, so that next to none of them is among the entries.
  static void skip_records(rocksdb::Iterator& at) {
    while (at.Valid() && !is_time_key(at.key().ToStringView())) at.Prev();
  }

  const std::shared_ptr<const BucketList> live_;
  std::vector<std::unique_ptr<rocksdb::Iterator>> at_;
};

} // namespace

void RocksdbStore::browse(const BrowseRequest& request, Done<BrowsePage> done) {
  if (const Status health = writer_->healthy(); !health) return done(health.fault());
  done(only_waiting(request.shown) ? browse_waiting(request) : browse_by_time(request));
}

void RocksdbStore::count_waiting(Done<WaitingKeys> done) { done(writer_->unsettled().count(clock_.now())); }

Result<BrowsePage> RocksdbStore::browse_waiting(const BrowseRequest& request) const {
  const Time now = clock_.now();
  const Unsettled::Waiting found = writer_->unsettled().waiting(request, now);
  BrowsePage page;
  page.whole = found.all;
  for (const BrowsePlace& place : found.places) {
    if (page.lines.size() == request.limit || page.looked == kLooksPerCall) {
      page.whole = false;
      break;
    }
    ++page.looked;
    page.next = place;
    Result<std::optional<Stored>> stored = buckets_.lookup(place.id, DecodeBody::no);
    if (!stored) return damaged(place.id, stored.fault());
    if (!*stored || !is_browsed(request, (*stored)->record, now)) continue;
    page.lines.push_back({place.id, as_listed(std::move((*stored)->record))});
  }
  if (page.whole) page.next.reset();
  return page;
}

Result<BrowsePage> RocksdbStore::browse_by_time(const BrowseRequest& request) const {
  const Time now = clock_.now();
  NewestFirst index(*db_, buckets_.live(), request.after ? request.after->first_received : now);
  const rocksdb::ReadOptions options = passing_by();
  const std::uint64_t looks_max = std::min<std::uint64_t>(kLooksPerCall, request.look_max);
  BrowsePage page;
  Time first_received{};
  for (auto ids = index.next(first_received); !ids.empty(); ids = index.next(first_received)) {
    std::optional<RecordId> last;
    for (const NewestFirst::Id& each : ids) {
      const BrowsePlace place{first_received, each.id};
      if (!comes_after(request.after, place)) continue;
      if (page.lines.size() == request.limit || page.looked >= looks_max) {
        page.whole = false;
        return page;
      }
      if (last == each.id) continue; // released and claimed again within the millisecond
      last = each.id;
      rocksdb::PinnableSlice value;
      const rocksdb::Status read = db_->Get(options, each.family, key_slice(each.id), &value);
      if (!read.ok() && !read.IsNotFound()) return damaged(each.id, fault_of(read, "could not be read"));
      ++page.looked;
      page.next = place;
      if (read.IsNotFound()) continue;
      Result<Record> record = decode_record({value.data(), value.size()}, DecodeBody::no);
      if (!record) return damaged(each.id, record.fault());
      if (record->first_received != first_received || !is_browsed(request, *record, now)) continue;
      page.lines.push_back({each.id, as_listed(*std::move(record))});
    }
  }
  if (const rocksdb::Status read = index.status(); !read.ok()) return fault_of(read, "the keys could not be listed");
  page.next.reset();
  return page;
}

// What the database has of Unsettled; entries of keys that are settled go into `leftovers`, to be removed.
Result<UnsettledKeys> RocksdbStore::read_unsettled(rocksdb::WriteBatch& leftovers) const {
  UnsettledKeys found;
  const Time now = clock_.now();
  // False if it is settled. One that cannot be read stays as it is: the next claim of it gets the fault.
  const auto add = [&](const RecordId& id, bool on_disk) {
    const Result<std::optional<Stored>> stored = buckets_.lookup(id, DecodeBody::no);
    if (!stored) return true;
    if (!*stored) return false;
    const Record& record = (*stored)->record;
    if (record.state == RecordState::completed || record.expired(now)) return false;
    found.keys.push_back({id, UnsettledKey::of(record, on_disk)});
    return true;
  };

  constexpr std::string_view kUnread = "what is not settled could not be read";
  const Result<std::optional<std::string>> noted = read_key(*db_, kNotedKey, kUnread);
  if (!noted) return noted.fault();
  const std::string noted_bytes = noted->value_or("");
  codec::Cursor cursor(noted_bytes);
  codec::field(cursor, found.noted_until);

  const auto take_up = [&](std::string_view key, std::string_view /*value*/) -> Result<bool> {
    const std::optional<RecordId> id = id_in_key(key, kUnsettledPrefix.size());
    if (id && !add(*id, true)) leftovers.Delete(slice_of(key));
    return id.has_value();
  };
  const Result<bool> read = scan(*db_, db_->DefaultColumnFamily(), kUnsettledPrefix, kUnread, take_up);
  if (!read) return read.fault();

  NewestFirst index(*db_, buckets_.live(), now);
  Time first_received{};
  for (auto ids = index.next(first_received); !ids.empty() && first_received > found.noted_until;
       ids = index.next(first_received)) {
    for (const NewestFirst::Id& each : ids) add(each.id, false); // those that are there already stay as they are
  }
  if (const rocksdb::Status status = index.status(); !status.ok()) return fault_of(status, kUnread);
  return found;
}

} // namespace oncekey
