#include "store/journal/journal_store.h"

#include "core/record_codec.h"
#include "core/transitions.h"
#include "store/common/calls.h"
#include "store/common/listing.h"
#include "store/journal/text_index.h"
#include "store/journal/time_index.h"

#include <fmt/format.h>

#include <condition_variable>
#include <map>

namespace oncekey {
namespace {

// How often maintenance looks at the clock: often enough that a bucket is gone within a second of its end.
constexpr std::chrono::seconds kMaintenanceEvery{1};
// A clock mark, encoded.
constexpr std::size_t kClockBytesMax = 256;
// When more calls than this are at work their endings share batches.
constexpr std::size_t kEndingsReservedMax = 2048;
// Rounds of maintenance from one look for expired keys to the next: it goes over all that are not settled.
constexpr std::uint64_t kForgetsEvery = 60;
// Files of large bodies looked at by one round of maintenance.
constexpr std::size_t kSweptAtOnce = 1024;
// Entries of expired keys erased by one round of maintenance.
constexpr std::size_t kExpiredAtOnce = 1024;

std::string_view key_of(const RecordId& id) { return key_slice(id).ToStringView(); }

bool is_large(const StoredResponse& response) { return response.bytes() > kLogBodyBytesMax; }

Fault damaged(const RecordId& id, const KeyLook& found, const Fault& fault) {
  return Fault{fault.kind,
               fmt::format("record {} in {}: {}", short_hash(id), to_string(found.family->bucket), fault.message)};
}

} // namespace

bool sleep_for(std::chrono::milliseconds time, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  stopped.wait_for(lock, stop, time, [] { return false; });
  return !stop.stop_requested();
}

JournalStore::JournalStore(const JournalStoreOptions& options, OpenedDatabase opened, StoreMeta meta)
    : log_(options.log),
      folder_(options.path),
      meta_(std::move(meta)),
      text_hash_(meta_.secret),
      witness_(folder_),
      ballast_(folder_),
      db_(std::move(opened.db)),
      bucket_options_(std::move(opened.bucket_options)),
      buckets_(*db_, bucket_options_, "", Buckets::Keys::ids, std::move(opened.buckets)),
      job_buckets_(*db_, bucket_options_, kJobFamilies, Buckets::Keys::others, std::move(opened.job_buckets)) {}

JournalStore::~JournalStore() {
  knowing_ = {}; // ends it
  maintenance_ = {};
  bodies_.reset(); // what it has written goes to the log
  if (journal_ == nullptr) return;
  const bool sound = journal_->healthy().ok();
  if (sound && clock_ != nullptr) {
    const std::unique_lock lock = journal_->lock();
    clock_saved_.reset();
    if (writes_ != 0) (void)begin_change(0, 0, Change::ending); // saves the clock
  }
  journal_->wait_until_durable();
  if (sound) keep_witness();
}

void JournalStore::claim(ClaimRequest request, Done<ClaimAnswer> done) {
  if (const Status health = journal_->healthy(); !health) return done(health.fault());

  // A completed record stays as it is until it expires. Once it has, the lookup finds its successor, if there is one.
  if (const std::shared_ptr<const Record> cached = replays_.find(request.id)) {
    const Time now = clock_->now();
    if (!cached->expired(now)) return done(ClaimAnswer(Found{cached, now}));
  }

  KeyLook found;
  const Status looked = look(request.id, Likely::cold, found);
  Result<std::optional<Record>> record =
      looked ? decode(request.id, found, DecodeBody::yes) : Result<std::optional<Record>>(looked.fault());
  if (!record) {
    found.lock = {};
    return done(std::move(record).fault());
  }
  const Time now = clock_->now();
  const OwnerWorksHere owner = works_here(owners_here_, request.id, *record, now);
  if (*record && !claim_changes(*record, request, now, owner)) {
    if (const Status read = read_body(request.id, found, **record); !read) return done(read.fault());
    // What is not durable may be gone after a power cut: it must not be answered from the cache.
    if (found.sequence <= journal_->durable()) replays_.insert(request.id, **record);
    return answer(std::move(found.lock), found.sequence, done, ClaimAnswer(Found{**std::move(record), now}));
  }
  if (const Status may = may_begin(); !may) {
    found.lock.unlock();
    return done(may.fault());
  }
  ClaimStep step = claim_step(*record, request, fences_.next(), now, owner);
  if (step.write) {
    const auto* const claimed = std::get_if<Claimed>(&step.answer);
    const bool first = claimed != nullptr && !claimed->took_over;
    const std::optional<BucketId> was_in = found.family ? std::optional(found.family->bucket) : std::nullopt;
    const BucketId goes_to = first ? bucket_of(step.write->expires_at, request.retention)
                                   : bucket_outliving(*was_in, step.write->expires_at);
    const Status written = put(request.id, *step.write, was_in, goes_to, claimed != nullptr, Change::other);
    if (!written) {
      found.lock.unlock();
      return done(written.fault());
    }
    found.sequence = journal_->newest();
  }
  answer(std::move(found.lock), found.sequence, done, std::move(step.answer));
}

void JournalStore::find(const RecordId& id, Interest /*interest*/, Done<std::optional<Found>> done) {
  if (const Status health = journal_->healthy(); !health) return done(health.fault());
  KeyLook found;
  const Status looked = look(id, Likely::young, found);
  Result<std::optional<Record>> record =
      looked ? decode(id, found, DecodeBody::yes) : Result<std::optional<Record>>(looked.fault());
  if (!record) {
    found.lock = {};
    return done(std::move(record).fault());
  }
  const Time now = clock_->now();
  std::optional<Found> answered;
  if (*record && !(*record)->expired(now)) {
    if (const Status read = read_body(id, found, **record); !read) return done(read.fault());
    answered.emplace(**std::move(record), now);
  }
  answer(std::move(found.lock), found.sequence, done, std::move(answered));
}

template <class T, class Settle>
void JournalStore::with_file(const RecordId& id, const StoredResponse& response, Done<T> done, Settle settle) {
  std::string encoded;
  encode_response(response, encoded);
  bodies_->write(BodyFileKind::response, id, std::move(encoded),
                 [done = std::move(done), settle = std::move(settle)](const Result<BodyReference>& body) mutable {
                   if (!body) return done(body.fault());
                   settle(*body, std::move(done));
                 });
}

template <class T, class MakeStep>
void JournalStore::apply(const RecordId& id, Change change, const std::optional<BodyReference>& body, Done<T> done,
                         MakeStep make_step) {
  if (const Status health = journal_->healthy(); !health) return done(health.fault());
  KeyLook found;
  const Status looked = look(id, Likely::young, found);
  const Result<std::optional<Record>> record =
      looked ? decode(id, found, DecodeBody::no) : Result<std::optional<Record>>(looked.fault());
  if (!record) {
    found.lock = {};
    return done(record.fault());
  }
  auto step = make_step(*record, clock_->now());
  Status written = ok_status();
  if (step.erase) {
    written = erase(id, found.family->bucket);
  } else if (step.write) {
    const BucketId bucket = found.family->bucket;
    written = put(id, *step.write, bucket, bucket_outliving(bucket, step.write->expires_at), false, change, body);
  }
  if (!written) {
    found.lock.unlock();
    return done(written.fault());
  }
  if (step.erase || step.write) found.sequence = journal_->newest();
  answer(std::move(found.lock), found.sequence, done, step.answer);
}

void JournalStore::by_fence(FenceCall call) {
  if (is_kept_from(call, owners_here_)) return call.done(FenceAnswer::lost);
  const RecordId id = call.owner.id;
  Done<FenceAnswer> done = std::move(call.done);
  if (call.verb != FenceVerb::complete || !is_large(call.response)) {
    return apply(id, call.verb == FenceVerb::renew ? Change::other : Change::ending, std::nullopt, std::move(done),
                 [&](const std::optional<Record>& found, Time now) { return fence_step(found, call, now); });
  }
  const auto shared = std::make_shared<FenceCall>(std::move(call));
  with_file(id, shared->response, std::move(done), [this, shared](const auto& body, Done<FenceAnswer> then) {
    apply(shared->owner.id, Change::ending, body, std::move(then),
          [&](const std::optional<Record>& found, Time now) { return fence_step(found, *shared, now); });
  });
}

void JournalStore::operate(const RecordId& id, OperatorAction action, StoredResponse response,
                           Done<OperatorAnswer> done) {
  if (!is_large(response)) {
    return apply(id, Change::ending, std::nullopt, std::move(done), [&](const std::optional<Record>& found, Time now) {
      return operate_step(found, action, std::move(response), now);
    });
  }
  const auto shared = std::make_shared<StoredResponse>(std::move(response));
  with_file(id, *shared, std::move(done), [this, id, action, shared](const auto& body, Done<OperatorAnswer> then) {
    apply(id, Change::ending, body, std::move(then), [&](const std::optional<Record>& found, Time now) {
      return operate_step(found, action, std::move(*shared), now);
    });
  });
}

Status JournalStore::look(const RecordId& id, Likely likely, KeyLook& found) const {
  const Status looked = entries_->look(FamilyKind::records, key_of(id), likely, found);
  if (looked) return looked;
  return Fault{looked.fault().kind, fmt::format("record {}: {}", short_hash(id), looked.fault().message)};
}

Result<std::optional<Record>> JournalStore::decode(const RecordId& id, const KeyLook& found, DecodeBody body) const {
  if (!found.family) return std::optional<Record>();
  Result<Record> record = decode_record(without_reference(found.value), body);
  if (record) return std::optional<Record>(*std::move(record));
  return damaged(id, found, record.fault());
}

Status JournalStore::read_body(const RecordId& id, KeyLook& found, Record& record) const {
  const std::optional<BodyReference> file = take_body_reference(found.value);
  if (!file) return ok_status();
  found.lock.unlock();
  const Result<std::string> bytes = bodies_->read(BodyFileKind::response, id, *file);
  Result<StoredResponse> response = bytes ? decode_response(*bytes) : Result<StoredResponse>(bytes.fault());
  if (!response) return damaged(id, found, response.fault());
  record.response = *std::move(response);
  found.lock.lock();
  return ok_status();
}

Status JournalStore::may_begin() const {
  if (forgetful_.load(std::memory_order_acquire)) return *loss_;
  // Each claim has room for its ending, should that be alone in its batch.
  if (journal_->room() < reserved() + kBlockBytes) return out_of_room();
  if (journal_->waiting() >= kWaitingCallsMax) return overloaded();
  return ok_status();
}

Status JournalStore::begin_step(std::size_t entries, std::size_t bytes) {
  if (!journal_->fits(entries, bytes)) return out_of_room();
  journal_->begin_step(entries, bytes);
  return ok_status();
}

std::uint64_t JournalStore::reserved() const {
  return (1 + std::min(unsettled_.in_progress(), kEndingsReservedMax)) * kBlockBytes;
}

Status JournalStore::begin_change(std::size_t entries, std::size_t bytes, Change change) {
  // Only an ending that fits into one block may use what is reserved for endings.
  const std::size_t needed = batch_bytes(entries * kEntryBytesMax + bytes);
  const bool is_small_ending = change == Change::ending && needed <= kBlockBytes;
  if (!is_small_ending && journal_->room() < reserved() + needed) return out_of_room();
  if (const Status begun = begin_step(entries + 1, bytes + kClockBytesMax); !begun) return begun;
  const Time now = clock_->now();
  if (!clock_saved_ || now - *clock_saved_ >= kClockSavedEvery) {
    journal_->put(kStoreFamily, kClockKey, encode_clock_mark(clock_->mark()));
    clock_saved_ = now;
  }
  ++writes_;
  return ok_status();
}

Status JournalStore::put(const RecordId& id, Record& record, const std::optional<BucketId>& was_in,
                         const BucketId& goes_to, bool takes_fence, Change change,
                         const std::optional<BodyReference>& body) {
  const std::string_view key = key_of(id);
  if (body) {
    record.response->headers.clear();
    record.response->body.clear();
    record.response->sealed.reset();
  }
  const std::size_t bytes =
      2 * key.size() + kBodyReferenceBytes + encoded_bytes_max(record) + kUnsettledBytes + kFenceBytes;
  if (const Status begun = begin_change(2 + kUnsettledEntries + kFenceEntries, bytes, change); !begun) return begun;
  if (takes_fence) fences_.take(*journal_);
  journal_->put_encoded({FamilyKind::records, goes_to}, key, [&](std::string& out) {
    if (body) encode_body_reference(*body, out);
    encode_record(record, out);
  });
  if (was_in && *was_in != goes_to) journal_->erase({FamilyKind::records, *was_in}, key);
  unsettled_.note(id, &record, *journal_);
  return ok_status();
}

Status JournalStore::erase(const RecordId& id, const BucketId& bucket) {
  const std::string_view key = key_of(id);
  if (const Status begun = begin_change(1 + kUnsettledEntries, key.size() + kUnsettledBytes, Change::ending); !begun)
    return begun;
  journal_->erase({FamilyKind::records, bucket}, key);
  unsettled_.note(id, nullptr, *journal_);
  return ok_status();
}

template <class T>
void JournalStore::answer(std::unique_lock<std::mutex> lock, std::uint64_t sequence, Done<T>& done, T value) const {
  if (sequence <= journal_->durable()) {
    lock.unlock();
    return done(std::move(value));
  }
  journal_->when_durable(sequence,
                         [done = std::move(done), value = std::move(value)]() mutable { done(std::move(value)); });
  journal_->flush();
}

void JournalStore::list(const ListRequest& request, Done<std::vector<Listed>> done) {
  std::vector<Listed> listed;
  const Time now = clock_->now();
  const auto look_at = [&](std::string_view key, std::string_view value) -> Result<bool> {
    if (listed.size() == request.limit) return false;
    const std::optional<RecordId> id = id_in_key(key, 0);
    if (!id) return true; // of an index
    Result<Record> record = decode_record(without_reference(value), DecodeBody::no);
    if (!record) return Fault{record.fault().kind, "record " + to_hex(*id) + ": " + record.fault().message};
    if (is_listed(request, *id, *record, now)) listed.push_back({*id, as_listed(*std::move(record))});
    return true;
  };
  const Status scanned = entries_->scan(FamilyKind::records, bytes_of_prefix(request.id_prefix),
                                        "the records could not be listed", look_at);
  if (!scanned) return done(scanned.fault());
  done(std::move(listed));
}

StoreStats JournalStore::stats() const {
  StoreStats stats;
  const std::shared_ptr<const BucketList> live = buckets_.live();
  std::uint64_t value = 0;
  for (const auto& buckets : {live, job_buckets_.live()}) {
    stats.buckets += buckets->size();
    for (const Bucket& bucket : *buckets) {
      rocksdb::ColumnFamilyHandle* const family = bucket.family.get();
      if (buckets == live && db_->GetIntProperty(family, rocksdb::DB::Properties::kEstimateNumKeys, &value))
        stats.records_estimate += value / 2; // each record has an entry in the index by text too
      if (db_->GetIntProperty(family, rocksdb::DB::Properties::kTotalSstFilesSize, &value))
        stats.bytes_on_disk += value;
      if (db_->GetIntProperty(family, rocksdb::DB::Properties::kEstimateTableReadersMem, &value))
        stats.bytes_in_memory += value; // filters
      if (bucket.known) stats.bytes_in_memory += bucket.known->bytes();
    }
  }
  if (!live->empty() &&
      db_->GetIntProperty(live->front().family.get(), rocksdb::DB::Properties::kBlockCacheUsage, &value)) {
    stats.bytes_in_memory += value; // one cache for all buckets
  }
  stats.syncs = journal_->syncs();
  const std::unique_lock lock = journal_->lock();
  const SegmentedLog::Sizes sizes = journal_->sizes();
  stats.records_estimate += sizes.records;
  stats.bytes_in_memory += sizes.bytes_in_memory;
  stats.bytes_on_disk += sizes.bytes_on_disk + bodies_->bytes();
  stats.writes = writes_;
  return stats;
}

void JournalStore::owners_here(OwnersHere owners) { owners_here_ = std::move(owners); }

void JournalStore::write_from(Loop* loop) {
  journal_->write_by([&](DurableWriter::Written written) {
    std::unique_ptr<DurableWriter> ring;
    if (loop != nullptr) ring = make_ring_writer(*loop, written);
    if (loop != nullptr && ring == nullptr) log_.info("no_io_uring", {{"meaning", "a thread writes the store's log"}});
    return ring != nullptr ? std::move(ring) : make_thread_writer(std::move(written));
  });
}

Status JournalStore::healthy() const {
  if (const Status health = journal_->healthy(); !health) return health;
  const std::unique_lock lock = journal_->lock();
  return may_begin();
}

Result<rocksdb::ColumnFamilyHandle*> JournalStore::family_of(const Family& family,
                                                             std::span<const SortedFiles::Line> lines) {
  if (family.bucket.end() <= clock_->now()) return nullptr;
  const Result<Bucket> bucket = (family.kind == FamilyKind::jobs ? job_buckets_ : buckets_).ensure(family.bucket);
  if (!bucket) return bucket.fault();
  if (bucket->known) {
    // Before the lines can be read there.
    for (const SortedFiles::Line& line : lines) {
      if (is_sealed_ids_key(line.key)) bucket->known->note(line.value);
    }
  }
  return bucket->family.get();
}

// The indexes by time and by the key's text, the ids for KnownIds, and the entries of what is not settled.
std::vector<SortedFiles::Derived> JournalStore::indexes_of(const YoungTable& changes, const LogEnd& sealed) {
  std::map<std::pair<Family, Time>, std::string> by_time;
  std::map<Family, std::string> fronts;
  std::vector<SortedFiles::Derived> derived;
  for (const YoungTable::Entry& entry : changes.entries()) {
    if (entry.family.kind != FamilyKind::records || entry.erased) continue;
    const std::string_view key = changes.key_of(entry);
    fronts[entry.family].append(front_of_id(key));
    const RecordFront record = front_of(without_reference(changes.value_of(entry)));
    by_time[{entry.family, record.first_received}].append(key);
    const std::optional<RecordId> id = id_in_key(key, 0);
    if (id && !record.key.empty()) derived.push_back({entry.family, text_key(text_hash_, record.key).append(key), {}});
    if (id && unsettled_.needs_entry(*id)) derived.push_back({kStoreFamily, key_with_id(kUnsettledPrefix, *id), {}});
  }
  for (auto& [family, of_ids] : fronts) derived.push_back({family, sealed_ids_key(sealed.sequence), std::move(of_ids)});
  for (auto& [when, ids] : by_time)
    derived.push_back({when.first, time_key(when.second, sealed.sequence), std::move(ids)});
  return derived;
}

Status JournalStore::maintain() {
  const std::lock_guard turn(maintenance_mutex_);
  ballast_.restore();
  catch_up_with_wall();
  answer_operator();
  keep_witness();
  const Time now = clock_->now();
  if (maintained_++ % kForgetsEvery == 0) {
    const std::unique_lock lock = journal_->lock();
    const std::vector<RecordId> expired = unsettled_.forget_expired(now, kExpiredAtOnce);
    // Without room they stay until the next start.
    if (!expired.empty() && begin_step(expired.size(), expired.size() * kUnsettledBytes)) {
      for (const RecordId& id : expired) journal_->erase(kStoreFamily, key_with_id(kUnsettledPrefix, id));
      journal_->flush();
    }
  }
  bodies_->sweep(kSweptAtOnce, [this](BodyFileKind kind, const RecordId& id, std::uint64_t number) {
    const bool is_message = kind == BodyFileKind::message;
    KeyLook found;
    found.lock = journal_->lock();
    const Status looked = is_message ? entries_->look_on(FamilyKind::jobs, message_key(id), found)
                                     : entries_->look_on(FamilyKind::records, key_of(id), found);
    // It cannot be told, or a power cut could still bring back an entry that refers to it.
    if (!looked || found.sequence > journal_->durable()) return true;
    const std::optional<BodyReference> body = found.family ? take_body_reference(found.value) : std::nullopt;
    return body && body->number == number;
  });
  for (Buckets* const buckets : {&buckets_, &job_buckets_}) {
    const std::unique_lock no_sealing = sorted_->pin();
    const Result<std::size_t> dropped = buckets->drop_ended(now);
    if (!dropped) return dropped.fault();
    if (*dropped != 0) log_.info("buckets_dropped", {{"buckets", *dropped}});
  }
  return ok_status();
}

void JournalStore::know_ids(const std::stop_token& stop) {
  pthread_setname_np(pthread_self(), "known-ids");
  const Status known = buckets_.load_known_ids(stop);
  if (!known)
    log_.warning("ids_not_read",
                 {{"reason", known.fault().message}, {"meaning", "new keys are looked for in all files"}});
}

void JournalStore::maintain_in_background(const std::stop_token& stop) {
  do {
    const Status done = journal_->healthy() ? maintain() : ok_status();
    if (!done) log_.warning("store_maintenance_failed", {{"reason", done.fault().message}});
  } while (sleep_for(kMaintenanceEvery, stop));
}

} // namespace oncekey
