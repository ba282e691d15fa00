#include "store/rocksdb/rocksdb_store.h"

#include "core/transitions.h"
#include "store/common/listing.h"
#include "store/rocksdb/rocksdb_fault.h"
#include "store/rocksdb/time_index.h"

#include <rocksdb/iterator.h>

#include <sys/statvfs.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace oncekey {
namespace {

// How often maintenance looks at the clock: often enough that a bucket is gone within a second of its end.
constexpr std::chrono::seconds kMaintenanceEvery{1};
// A bucket is made this long before its first record, or an eighth of its width if that is less: the writer should
// not have to wait for RocksDB to make one.
constexpr Millis kMadeAheadMax{60'000};

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

RocksdbStore::RocksdbStore(RocksdbOptions options, std::shared_ptr<WatchedFiles> files,
                           std::unique_ptr<rocksdb::Env> env, std::unique_ptr<rocksdb::DB> db,
                           const rocksdb::ColumnFamilyOptions& bucket_options, BucketList buckets,
                           BucketList job_buckets, StoreMeta meta)
    : log_(options.log),
      folder_(std::move(options.path)),
      meta_(std::move(meta)),
      clock_(std::move(options.clock), meta_.clock),
      witness_(folder_),
      ballast_(folder_),
      files_(std::move(files)),
      env_(std::move(env)),
      db_(std::move(db)),
      buckets_(*db_, bucket_options, "", std::move(buckets)),
      job_buckets_(*db_, bucket_options, kJobFamilies, std::move(job_buckets)),
      job_table_(*db_, job_buckets_),
      writer_(
          std::make_unique<Writer>(*db_, buckets_, job_table_, clock_,
                                   WriterOptions{std::move(options.on_fatal), [this] { return files_->sync_failed(); },
                                                 [this](std::uint64_t bytes) { return make_room(bytes); },
                                                 [this] {
                                                   rocksdb::WriteBatch unused;
                                                   return read_unsettled(unused);
                                                 }})),
      jobs_(job_table_, *writer_, clock_,
            [this] { return forgetful_.load(std::memory_order_acquire) ? Status(*loss_) : ok_status(); }) {}

RocksdbStore::~RocksdbStore() {
  files_->stop_waiting();
  {
    const std::lock_guard lock(stop_mutex_);
    stopping_ = true;
  }
  stop_.notify_one();
  if (maintenance_.joinable()) maintenance_.join();
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

void RocksdbStore::renew(const Ownership& owner, Millis lease, Done<FenceAnswer> done) {
  writer_->submit(Writer::FenceCall{{FenceVerb::renew, owner, lease, {}, std::move(done)}});
}

void RocksdbStore::complete(const Ownership& owner, StoredResponse response, Done<FenceAnswer> done) {
  writer_->submit(Writer::FenceCall{{FenceVerb::complete, owner, Millis{}, std::move(response), std::move(done)}});
}

void RocksdbStore::release(const Ownership& owner, Done<FenceAnswer> done) {
  writer_->submit(Writer::FenceCall{{FenceVerb::release, owner, Millis{}, {}, std::move(done)}});
}

void RocksdbStore::hold(const Ownership& owner, Holder by, Done<FenceAnswer> done) {
  if (by == Holder::finder && owners_here_ && owners_here_(owner.id) == owner.fence) return done(FenceAnswer::lost);
  const auto verb = by == Holder::owner ? FenceVerb::hold : FenceVerb::hold_found;
  writer_->submit(Writer::FenceCall{{verb, owner, Millis{}, {}, std::move(done)}});
}

void RocksdbStore::operate(const RecordId& id, OperatorAction action, StoredResponse response,
                           Done<OperatorAnswer> done) {
  writer_->submit(Writer::OperatorCall{{id, action, std::move(response), std::move(done)}});
}

void RocksdbStore::list(const ListRequest& request, Done<std::vector<Listed>> done) {
  std::vector<Listed> listed;
  const Time now = clock_.now();
  rocksdb::ReadOptions scan;
  scan.fill_cache = false; // a scan would push out what replays need
  const std::string prefix = bytes_of_prefix(request.id_prefix);
  const std::shared_ptr<const BucketList> live = buckets_.live();
  for (const Bucket& bucket : *live) {
    const std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator(scan, bucket.family.get()));
    for (at->Seek(prefix); at->Valid() && listed.size() < request.limit; at->Next()) {
      if (!at->key().starts_with(prefix)) break;
      if (is_time_key(at->key().ToStringView())) continue;
      Listed line;
      if (at->key().size() != line.id.bytes.size()) return done(corrupt("a stored key does not have 32 bytes"));
      std::memcpy(line.id.bytes.data(), at->key().data(), line.id.bytes.size());
      Result<Record> record = decode_record({at->value().data(), at->value().size()}, DecodeBody::no);
      if (!record) {
        return done(Fault{record.fault().kind, "record " + to_hex(line.id) + ": " + record.fault().message});
      }
      if (!is_listed(request, line.id, *record, now)) continue;
      line.record = as_listed(*std::move(record));
      listed.push_back(std::move(line));
    }
    if (!at->status().ok()) return done(fault_of(at->status(), "the records could not be listed"));
  }
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
  if (const Status jobs = job_table_.load(least_fence_here_, clock_.now(), leftovers); !jobs) return jobs;
  Result<UnsettledKeys> unsettled = read_unsettled(leftovers);
  if (!unsettled) return std::move(unsettled).fault();
  if (leftovers.Count() != 0) {
    rocksdb::WriteOptions durable; // as all writes are: the witness counts them
    durable.sync = true;
    const rocksdb::Status written = db_->Write(durable, &leftovers);
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
  if (const Status kept = keep_buckets(buckets_, writer_->retentions_in_use(), now); !kept) return kept;
  return keep_buckets(job_buckets_, job_table_.retentions_in_use(), now);
}

Status RocksdbStore::keep_buckets(Buckets& buckets, const std::map<int, Millis>& retentions, Time now) {
  const Result<std::size_t> dropped = buckets.drop_ended(now);
  if (!dropped) return dropped.fault();
  if (*dropped != 0) log_.info("buckets_dropped", {{"buckets", *dropped}});
  for (const auto& [width_log2, retention] : retentions) {
    const Millis ahead = std::min(kMadeAheadMax, Millis{std::int64_t{1} << width_log2} / 8);
    const Result<Bucket> made = buckets.ensure(bucket_of(now + retention + ahead, retention));
    if (!made) return made.fault();
  }
  return ok_status();
}

void RocksdbStore::maintain_in_background() {
  std::unique_lock lock(stop_mutex_);
  while (!stopping_) {
    lock.unlock();
    const Status done = writer_->healthy() ? maintain() : ok_status();
    if (!done) log_.warning("store_maintenance_failed", {{"reason", done.fault().message}});
    lock.lock();
    stop_.wait_for(lock, kMaintenanceEvery, [this] { return stopping_; });
  }
}

} // namespace oncekey
