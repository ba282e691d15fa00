// How a JournalStore shows its keys to people: newest first by its time index, and what is not settled.
#include "core/record_codec.h"
#include "store/common/listing.h"
#include "store/journal/journal_store.h"
#include "store/journal/text_index.h"
#include "store/journal/time_index.h"

namespace oncekey {
namespace {

// Records looked at in one call, which is answered on the caller's thread: some ten milliseconds where they are in
// memory. The caller goes on from there.
constexpr std::uint64_t kLooksPerCall = 4096;

// The ids of all records, the newest first, a millisecond at a time: of young ones, and of the entries of all buckets.
class NewestFirst {
 public:
  NewestFirst(rocksdb::DB& db, std::vector<BrowsePlace> young, std::shared_ptr<const BucketList> live, Time from)
      : young_(std::move(young)), live_(std::move(live)) {
    std::sort(young_.begin(), young_.end(), newer);
    const std::string start = time_key(from + Millis{1}, 0);
    for (const Bucket& bucket : *live_) {
      at_.emplace_back(db.NewIterator(passing_by(), bucket.family.get()));
      at_.back()->SeekForPrev(start);
      skip_records(*at_.back());
    }
    while (next_young_ < young_.size() && young_[next_young_].first_received > from) ++next_young_;
  }

  // All of the newest millisecond that is left, each once, largest first; empty at the end.
  std::vector<RecordId> next(Time& first_received) {
    std::vector<RecordId> ids;
    std::optional<Time> newest;
    const auto consider = [&](Time time) { newest = newest ? std::max(*newest, time) : time; };
    if (next_young_ < young_.size()) consider(young_[next_young_].first_received);
    for (const auto& at : at_) {
      if (at->Valid()) consider(time_of_key(at->key().ToStringView()));
    }
    if (!newest) return ids;
    first_received = *newest;
    for (; next_young_ < young_.size() && young_[next_young_].first_received == *newest; ++next_young_)
      ids.push_back(young_[next_young_].id);
    for (const auto& at : at_) {
      while (at->Valid() && time_of_key(at->key().ToStringView()) == *newest) {
        const std::vector<RecordId> more = ids_in(at->value().ToStringView());
        ids.insert(ids.end(), more.begin(), more.end());
        at->Prev();
        skip_records(*at);
      }
    }
    std::sort(ids.begin(), ids.end(), std::greater<>());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
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

  std::vector<BrowsePlace> young_; // newest first
  std::size_t next_young_ = 0;
  const std::shared_ptr<const BucketList> live_;
  std::vector<std::unique_ptr<rocksdb::Iterator>> at_;
};

} // namespace

void JournalStore::browse(const BrowseRequest& request, Done<BrowsePage> done) {
  if (const Status health = journal_->healthy(); !health) return done(health.fault());
  if (!request.key.empty()) return done(browse_by_key(request));
  done(only_waiting(request.shown) ? browse_waiting(request) : browse_by_time(request));
}

void JournalStore::count_waiting(Done<WaitingKeys> done) { done(unsettled_.count(clock_->now())); }

Result<BrowsePage> JournalStore::browse_waiting(const BrowseRequest& request) const {
  const Time now = clock_->now();
  const Unsettled::Waiting found = unsettled_.waiting(request, now);
  BrowsePage page;
  page.whole = found.all;
  for (const BrowsePlace& place : found.places) {
    if (page.lines.size() == request.limit || page.looked == kLooksPerCall) {
      page.whole = false;
      break;
    }
    ++page.looked;
    page.next = place;
    Result<std::optional<Record>> record = read(place.id);
    if (!record) return std::move(record).fault();
    if (!*record || !is_browsed(request, **record, now)) continue;
    page.lines.push_back({place.id, as_listed(**std::move(record))});
  }
  if (page.whole) page.next.reset();
  return page;
}

Result<BrowsePage> JournalStore::browse_by_key(const BrowseRequest& request) const {
  const Time now = clock_->now();
  SegmentedLog::Young young;
  {
    const std::unique_lock lock = journal_->lock();
    young = journal_->young(FamilyKind::records, {});
  }
  std::unordered_set<RecordId> ids;
  for (const SegmentedLog::Young::Entry& entry : young.entries) {
    const std::optional<RecordId> id = id_in_key(entry.key, 0);
    if (!id || entry.erased) continue;
    const Result<Record> record = decode_record(without_reference(entry.value), DecodeBody::no);
    if (record && record->key == request.key) ids.insert(*id);
  }
  const std::string prefix = text_key(text_hash_, request.key);
  const auto add = [&](std::string_view key, std::string_view /*value*/) -> Result<bool> {
    if (const std::optional<RecordId> id = id_in_key(key, prefix.size())) ids.insert(*id);
    return ids.size() < kLooksPerCall;
  };
  const Status scanned = buckets_.scan_all(prefix, "the keys could not be searched", add);
  if (!scanned) return scanned.fault();
  NewestLines newest(request.limit);
  for (const RecordId& id : ids) {
    Result<std::optional<Record>> record = read(id);
    if (!record) return std::move(record).fault();
    if (!*record || !is_browsed(request, **record, now)) continue;
    const BrowsePlace place{(*record)->first_received, id};
    if (comes_after(request.after, place))
      newest.offer(place, [&] { return Listed{id, as_listed(**std::move(record))}; });
  }
  return std::move(newest).page(ids.size(), ids.size() < kLooksPerCall);
}

Result<BrowsePage> JournalStore::browse_by_time(const BrowseRequest& request) const {
  const Time now = clock_->now();
  std::vector<BrowsePlace> young;
  {
    const std::unique_lock lock = journal_->lock();
    const SegmentedLog::Young found = journal_->young(FamilyKind::records, {});
    for (const SegmentedLog::Young::Entry& entry : found.entries) {
      const std::optional<RecordId> id = id_in_key(entry.key, 0);
      if (id && !entry.erased) young.push_back({front_of(without_reference(entry.value)).first_received, *id});
    }
  }
  NewestFirst index(*db_, std::move(young), buckets_.live(), request.after ? request.after->first_received : now);
  const std::uint64_t looks_max = std::min<std::uint64_t>(kLooksPerCall, request.look_max);
  BrowsePage page;
  Time first_received{};
  for (auto ids = index.next(first_received); !ids.empty(); ids = index.next(first_received)) {
    for (const RecordId& id : ids) {
      const BrowsePlace place{first_received, id};
      if (!comes_after(request.after, place)) continue;
      if (page.lines.size() == request.limit || page.looked >= looks_max) {
        page.whole = false;
        return page;
      }
      Result<std::optional<Record>> record = read(id);
      if (!record) return std::move(record).fault();
      ++page.looked;
      page.next = place;
      if (!*record || (*record)->first_received != first_received || !is_browsed(request, **record, now)) continue;
      page.lines.push_back({id, as_listed(**std::move(record))});
    }
  }
  if (const rocksdb::Status read = index.status(); !read.ok()) return fault_of(read, "the keys could not be listed");
  page.next.reset();
  return page;
}

// For people: it need not be durable.
Result<std::optional<Record>> JournalStore::read(const RecordId& id) const {
  KeyLook found;
  if (const Status looked = look(id, Likely::cold, found); !looked) return looked.fault();
  return decode(id, found, DecodeBody::no);
}

// The young records show their state themselves; the old ones that are not settled have an entry.
Status JournalStore::load_unsettled() {
  std::unordered_map<RecordId, UnsettledKey> keys;
  const Time now = clock_->now();
  SegmentedLog::Young young;
  {
    const std::unique_lock lock = journal_->lock();
    young = journal_->young(FamilyKind::records, {});
  }
  for (const SegmentedLog::Young::Entry& entry : young.entries) {
    const std::optional<RecordId> id = id_in_key(entry.key, 0);
    if (!id || entry.erased) continue;
    // One that cannot be read stays as it is: the next claim of it gets the fault.
    const Result<Record> record = decode_record(without_reference(entry.value), DecodeBody::no);
    if (record && record->state != RecordState::completed && !record->expired(now))
      keys.emplace(*id, UnsettledKey::of(*record, false));
  }
  std::vector<RecordId> settled;
  const auto take_up = [&](std::string_view key, std::string_view /*value*/) -> Result<bool> {
    const std::optional<RecordId> id = id_in_key(key, kUnsettledPrefix.size());
    if (!id) return corrupt("an entry of what is not settled does not have an id");
    if (const auto known = keys.find(*id); known != keys.end()) {
      known->second.has_entry = true;
      return true;
    }
    const Result<std::optional<Record>> record = read(*id);
    if (!record) return true;
    if (*record && (*record)->state != RecordState::completed && !(*record)->expired(now)) {
      keys.emplace(*id, UnsettledKey::of(**record, true));
    } else {
      settled.push_back(*id);
    }
    return true;
  };
  const Status scanned =
      entries_->scan(FamilyKind::store, kUnsettledPrefix, "what is not settled could not be read", take_up);
  if (!scanned) return scanned;
  unsettled_.start_with(std::move(keys));
  const std::unique_lock lock = journal_->lock();
  for (const RecordId& id : settled) {
    if (!begin_step(1, kUnsettledBytes)) break; // it stays until the next start
    journal_->erase(kStoreFamily, key_with_id(kUnsettledPrefix, id));
  }
  return ok_status();
}

} // namespace oncekey
