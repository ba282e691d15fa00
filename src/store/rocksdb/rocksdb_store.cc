#include "store/rocksdb/rocksdb_store.h"

#include "core/transitions.h"
#include "store/common/listing.h"
#include "store/rocksdb/time_index.h"

#include <sys/statvfs.h>

#include <condition_variable>

namespace oncekey {
namespace {

// How often maintenance looks at the clock: often enough that a bucket is gone within a second of its end.
constexpr std::chrono::seconds kMaintenanceEvery{1};

// A flush of a memtable may be on its way, and a large batch brings the next one nearer.
constexpr std::uint64_t kRoomBesideSmallBatch = 8u << 20;
constexpr std::uint64_t kRoomBesideLargeBatch = 40u << 20;
constexpr std::uint64_t kLargeBatchBytes = 256u << 10;

bool has_room(const std::string& folder, std::uint64_t bytes) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) return true; // writing will tell
  const std::uint64_t beside = bytes < kLargeBatchBytes ? kRoomBesideSmallBatch : kRoomBesideLargeBatch;
  return std::uint64_t{disk.f_bavail} * disk.f_frsize >= bytes + bytes / 4 + beside;
}

} // namespace

bool sleep_for(std::chrono::milliseconds time, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  stopped.wait_for(lock, stop, time, [] { return false; });
  return !stop.stop_requested();
}

RocksdbStore::RocksdbStore(RocksdbOptions options, OpenedDatabase opened, StoreMeta meta)
    : log_(options.log),
      folder_(std::move(options.path)),
      meta_(std::move(meta)),
      clock_(std::move(options.clock), meta_.clock),
      witness_(folder_),
      ballast_(folder_),
      files_(std::move(opened.files)),
      env_(std::move(opened.env)),
      db_(std::move(opened.db)),
      buckets_(*db_, opened.bucket_options, "", std::move(opened.buckets)),
      job_buckets_(*db_, opened.bucket_options, kJobFamilies, std::move(opened.job_buckets)),
      jobs_(*db_, job_buckets_, clock_,
            [this] { return forgetful_.load(std::memory_order_acquire) ? Status(*loss_) : ok_status(); }),
      writer_(
          std::make_unique<Writer>(*db_, buckets_, jobs_, clock_,
                                   WriterOptions{std::move(options.on_fatal), [this] { return files_->sync_failed(); },
                                                 [this](std::uint64_t bytes) { return make_room(bytes); },
                                                 [this] {
                                                   rocksdb::WriteBatch unused;
                                                   return read_unsettled(unused);
                                                 }})) {
  jobs_.use(*writer_);
}

RocksdbStore::~RocksdbStore() {
  files_->stop_waiting();
  maintenance_ = {}; // ends it
  const bool sound = writer_->healthy().ok();
  writer_.reset(); // writes the last batch
  if (sound) keep_witness();
}

void RocksdbStore::claim(ClaimRequest request, Done<ClaimAnswer> done) {
  const Status health = writer_->healthy();
  if (!health) return done(health.fault());

  // A completed record stays as it is until it expires. Once it has, the lookup finds its successor, if there is one.
  if (const std::shared_ptr<const Record> cached = replays_.find(request.id)) {
    const Time now = clock_.now();
    if (!cached->expired(now)) return done(ClaimAnswer(Found{cached, now}));
  }

  // Taken before the lookup: everything up to this batch is visible to it, and the writer looks again at the rest.
  const std::uint64_t seen = writer_->last_batch();
  Result<std::optional<Stored>> found = buckets_.lookup(request.id, DecodeBody::yes);
  if (!found) return done(std::move(found).fault());
  if (*found) {
    const Time now = clock_.now();
    std::optional<Record> record = std::move((*found)->record);
    if (!claim_changes(record, request, now, works_here(owners_here_, request.id, record, now))) {
      replays_.insert(request.id, *record);
      return done(ClaimAnswer(Found{*std::move(record), now}));
    }
    (*found)->record = *std::move(record);
  }
  if (forgetful_.load(std::memory_order_acquire)) return done(*loss_);
  writer_->submit(Writer::ClaimCall{{{std::move(request), std::move(done)}}, seen, *std::move(found)});
}

void RocksdbStore::find(const RecordId& id, Interest /*interest*/, Done<std::optional<Found>> done) {
  const Status health = writer_->healthy();
  if (!health) return done(health.fault());
  Result<std::optional<Stored>> found = buckets_.lookup(id, DecodeBody::yes);
  if (!found) return done(std::move(found).fault());
  const Time now = clock_.now();
  if (!*found || (*found)->record.expired(now)) return done(std::optional<Found>{});
  done(std::optional<Found>(Found{std::move((*found)->record), now}));
}

void RocksdbStore::by_fence(FenceCall call) {
  if (is_kept_from(call, owners_here_)) return call.done(FenceAnswer::lost);
  writer_->submit(Writer::FenceCall{{std::move(call)}});
}

void RocksdbStore::operate(const RecordId& id, OperatorAction action, StoredResponse response,
                           Done<OperatorAnswer> done) {
  writer_->submit(Writer::OperatorCall{{id, action, std::move(response), std::move(done)}});
}

void RocksdbStore::list(const ListRequest& request, Done<std::vector<Listed>> done) {
  std::vector<Listed> listed;
  const Time now = clock_.now();
  const auto look_at = [&](std::string_view key, std::string_view value) -> Result<bool> {
    if (listed.size() == request.limit) return false;
    if (is_time_key(key)) return true;
    const std::optional<RecordId> id = id_in_key(key, 0);
    if (!id) return corrupt("a stored key does not have 32 bytes");
    Result<Record> record = decode_record(value, DecodeBody::no);
    if (!record) return Fault{record.fault().kind, "record " + to_hex(*id) + ": " + record.fault().message};
    if (is_listed(request, *id, *record, now)) listed.push_back({*id, as_listed(*std::move(record))});
    return true;
  };
  const Status scanned =
      buckets_.scan_all(bytes_of_prefix(request.id_prefix), "the records could not be listed", look_at);
  if (!scanned) return done(scanned.fault());
  done(std::move(listed));
}

StoreStats RocksdbStore::stats() const {
  StoreStats stats;
  const std::shared_ptr<const BucketList> live = buckets_.live();
  std::uint64_t value = 0;
  for (const auto& buckets : {live, job_buckets_.live()}) {
    stats.buckets += buckets->size();
    for (const Bucket& bucket : *buckets) {
      rocksdb::ColumnFamilyHandle* const family = bucket.family.get();
      if (buckets == live && db_->GetIntProperty(family, rocksdb::DB::Properties::kEstimateNumKeys, &value))
        stats.records_estimate += value;
      if (db_->GetIntProperty(family, rocksdb::DB::Properties::kTotalSstFilesSize, &value))
        stats.bytes_on_disk += value;
      if (db_->GetIntProperty(family, rocksdb::DB::Properties::kSizeAllMemTables, &value)) {
        stats.bytes_in_memory += value;
        stats.bytes_on_disk += value; // what is in a memtable is in the log as well, about as long
      }
    }
  }
  if (!live->empty() &&
      db_->GetIntProperty(live->front().family.get(), rocksdb::DB::Properties::kBlockCacheUsage, &value)) {
    stats.bytes_in_memory += value; // one cache for all buckets
  }
  stats.syncs = writer_->syncs();
  stats.writes = writer_->writes();
  return stats;
}

void RocksdbStore::owners_here(OwnersHere owners) {
  owners_here_ = owners;
  writer_->owners_here(std::move(owners));
}

// What other programs have taken, the ballast has in store: endings of what was begun are small and must be written.
bool RocksdbStore::make_room(std::uint64_t bytes) const {
  if (has_room(folder_, bytes)) return true;
  return bytes < kLargeBatchBytes && ballast_.drop() && has_room(folder_, bytes);
}

Status RocksdbStore::load_indexes_and_fences() {
  Fences fences;
  if (const Status loaded = fences.load(*db_, clock_.now()); !loaded) return loaded;
  least_fence_here_ = fences.next();
  rocksdb::WriteBatch leftovers;
  if (const Status jobs = jobs_.load(least_fence_here_, clock_.now(), leftovers); !jobs) return jobs;
  Result<UnsettledKeys> unsettled = read_unsettled(leftovers);
  if (!unsettled) return std::move(unsettled).fault();
  if (leftovers.Count() != 0) {
    // Durably, as all writes are: the witness counts them.
    const rocksdb::Status written = db_->Write(durably(), &leftovers);
    // On a full disk they stay until the next start.
    if (!written.ok() && (!written.IsNoSpace() || files_->sync_failed())) {
      return fault_of(written, "entries of what is over could not be removed");
    }
  }
  writer_->start_with(*std::move(unsettled), fences);
  return ok_status();
}

Status RocksdbStore::healthy() const {
  if (const Status writes = writer_->can_write(); !writes) return writes;
  if (forgetful_.load(std::memory_order_acquire)) return *loss_;
  return ok_status();
}

// After a shortage RocksDB refuses every write until it is told to go on; it flushes what it has in memory then, and
// begins a new log.
void RocksdbStore::resume_writes() {
  if (writer_->can_write() || files_->sync_failed()) return;
  if (const rocksdb::Status resumed = db_->Resume(); resumed.ok()) writer_->try_again();
}

Status RocksdbStore::maintain() {
  const std::lock_guard turn(maintenance_mutex_);
  ballast_.restore();
  resume_writes();
  catch_up_with_wall();
  answer_operator();
  note_loss();
  keep_witness();
  const Time now = clock_.now();
  for (Buckets* const buckets : {&buckets_, &job_buckets_}) {
    const Result<std::size_t> dropped = buckets->drop_ended(now);
    if (!dropped) return dropped.fault();
    if (*dropped != 0) log_.info("buckets_dropped", {{"buckets", *dropped}});
    if (const Status made = buckets->make_ahead(now); !made) return made;
  }
  return ok_status();
}

void RocksdbStore::maintain_in_background(const std::stop_token& stop) {
  do {
    const Status done = writer_->healthy() ? maintain() : ok_status();
    if (!done) log_.warning("store_maintenance_failed", {{"reason", done.fault().message}});
  } while (sleep_for(kMaintenanceEvery, stop));
}

} // namespace oncekey
