#include "store/rocksdb/rocksdb_jobs.h"

#include "core/job_transitions.h"
#include "core/record_codec.h"
#include "store/rocksdb/writer.h"

#include <algorithm>
#include <memory>

namespace oncekey {
namespace {

constexpr std::string_view kState = "s";
constexpr std::string_view kMessage = "m";
constexpr std::string_view kIndexed = "job/";
// Expired jobs taken out of the index by one call.
constexpr std::size_t kForgottenAtOnce = 64;
// A listing is answered on its caller's thread: so many states take some ten milliseconds.
constexpr std::size_t kScannedAtOnce = 20'000;

std::string index_key(std::uint64_t place, const RecordId& id) {
  std::string prefix(kIndexed);
  append_big_endian(prefix, place); // so that the order of the keys is that of the places
  return key_with_id(prefix, id);
}

Fault unreadable(const RecordId& id, const Fault& fault) {
  return Fault{fault.kind, "job " + to_hex(id) + ": " + fault.message};
}

} // namespace

template <class T, class Apply>
void RocksdbJobs::change(Done<T> done, Apply apply, std::size_t bytes) {
  writer_->submit(Writer::JobCall<T>{std::move(apply), std::move(done), bytes});
}

void RocksdbJobs::stage(StageRequest request, Done<StageAnswer> done) {
  if (const Status health = writer_->healthy(); !health) return done(health.fault());
  const Result<Place> found = look_up(request.id);
  if (!found) return done(found.fault());
  if (found->job && !found->job->expired(clock_.now())) return done(StageAnswer{false, found->job->fingerprint});
  if (const Status may = may_stage_(); !may) return done(may.fault());
  std::string message;
  encode_message(request.message, message);
  request.message = Message{};
  const std::size_t bytes = message.size();
  auto apply = [this, request = std::move(request), message = std::move(message)](JobBatch& batch) {
    return stage(request, message, batch);
  };
  change(std::move(done), std::move(apply), bytes);
}

void RocksdbJobs::take(const TakeRequest& request, Done<std::vector<TakenJob>> done) {
  // The usual answer costs no thread a wake-up.
  if (index_.due(request, clock_.now()).empty()) return done(std::vector<TakenJob>{});
  change<std::vector<TakenJob>>(
      [this, done = std::move(done)](Result<std::vector<TakenJob>> taken) { done(with_messages(std::move(taken))); },
      [this, request](JobBatch& batch) { return take(request, batch); });
}

void RocksdbJobs::end_attempt(const Ownership& owner, AttemptEnd end, Done<FenceAnswer> done) {
  change(std::move(done),
         [this, owner, end = std::move(end)](JobBatch& batch) { return end_attempt(owner, end, batch); });
}

void RocksdbJobs::find(const RecordId& id, Done<std::optional<FoundJob>> done) {
  if (const Status health = writer_->healthy(); !health) return done(health.fault());
  Result<Place> found = look_up(id);
  if (!found) return done(std::move(found).fault());
  const Time now = clock_.now();
  if (!found->job || found->job->expired(now)) return done(std::optional<FoundJob>{});
  FoundJob answer{*std::move(found->job), std::nullopt, now};
  if (answer.job.message_kept) {
    Result<std::optional<Message>> kept = message(id);
    if (kept) {
      answer.message = *std::move(kept);
    } else {
      answer.unreadable = std::move(kept).fault();
    }
  }
  done(std::optional(std::move(answer)));
}

void RocksdbJobs::operate(const RecordId& id, const std::string& /*route*/, JobAction action, Done<JobAnswer> done) {
  change(std::move(done), [this, id, action](JobBatch& batch) { return operate(id, action, batch); });
}

void RocksdbJobs::list(const JobListRequest& request, Done<JobPage> done) {
  if (const Status health = writer_->healthy(); !health) return done(health.fault());
  done(list(request));
}

void RocksdbJobs::count(Done<std::vector<JobCount>> done) {
  if (index_.expired(clock_.now(), 1).empty()) return done(index_.count());
  change(std::move(done), [this](JobBatch& batch) -> Result<std::vector<JobCount>> {
    if (const Status forgotten = forget_expired(batch); !forgotten) return forgotten.fault();
    return index_.count();
  });
}

Result<RocksdbJobs::Place> RocksdbJobs::look_up(const RecordId& id) const {
  rocksdb::PinnableSlice value;
  const Result<std::optional<BucketId>> bucket = buckets_.get(key_with_id(kState, id), value);
  if (!bucket) return unreadable(id, bucket.fault());
  if (!*bucket) return Place{};
  Result<StoredJob> job = decode_job(id, value.ToStringView());
  if (!job) return unreadable(id, job.fault());
  return Place{*std::move(job), **bucket};
}

Result<std::optional<Message>> RocksdbJobs::message(const RecordId& id) const {
  rocksdb::PinnableSlice value;
  const Result<std::optional<BucketId>> bucket = buckets_.get(key_with_id(kMessage, id), value);
  if (!bucket) return unreadable(id, bucket.fault());
  if (!*bucket) return std::optional<Message>{};
  Result<Message> message = decode_message(value.ToStringView());
  if (!message) return unreadable(id, message.fault());
  return std::optional<Message>(*std::move(message));
}

Result<std::vector<TakenJob>> RocksdbJobs::with_messages(Result<std::vector<TakenJob>> taken) const {
  if (!taken) return taken;
  for (TakenJob& job : *taken) {
    Result<std::optional<Message>> kept = message(job.job.id);
    if (kept && *kept) {
      job.message = **std::move(kept);
    } else {
      job.unreadable = kept ? corrupt("its message is gone") : std::move(kept).fault();
    }
  }
  return taken;
}

Result<JobPage> RocksdbJobs::list(const JobListRequest& request) const {
  const Time now = clock_.now();
  JobPage page;
  // False when the page is full.
  const auto add = [&](StoredJob job) {
    if (!is_listed(request, job, now)) return true;
    page.whole = page.jobs.size() < request.limit;
    if (page.whole) page.jobs.push_back(std::move(job));
    return page.whole;
  };
  if (request.state && *request.state != JobState::delivered && *request.state != JobState::dropped) {
    for (const RecordId& id : index_.list(request, now)) {
      Result<Place> found = look_up(id);
      if (!found) return std::move(found).fault();
      if (found->job && !add(*std::move(found->job))) return page;
    }
    page.whole = index_.size() <= request.look_max;
    return page;
  }
  const std::size_t looks_max = std::min(request.look_max, kScannedAtOnce);
  std::size_t looked = 0;
  const Status scanned =
      buckets_.scan_all(std::string(kState) + bytes_of_prefix(request.id_prefix), "the jobs could not be listed",
                        [&](std::string_view key, std::string_view value) -> Result<bool> {
                          const std::optional<RecordId> id = id_in_key(key, kState.size());
                          if (!id) return corrupt("a stored job's key does not have 33 bytes");
                          Result<StoredJob> job = decode_job(*id, value);
                          if (!job) return unreadable(*id, job.fault());
                          page.whole = looked++ < looks_max;
                          return page.whole && add(*std::move(job));
                        });
  if (!scanned) return scanned.fault();
  return page;
}

Status RocksdbJobs::load(std::uint64_t least_fence_here, Time now, rocksdb::WriteBatch& leftovers) {
  least_fence_here_ = least_fence_here;
  JobIndex found;
  const auto add = [&](std::string_view key, std::string_view /*value*/) -> Result<bool> {
    const std::optional<RecordId> id = id_in_key(key, kIndexed.size() + sizeof(std::uint64_t));
    if (!id) return false;
    Result<Place> stored = look_up(*id);
    if (!stored) return std::move(stored).fault();
    // Of jobs that have expired, or come again since.
    if (const auto older = found.place_of(*id)) leftovers.Delete(index_key(*older, *id));
    std::optional<StoredJob>& job = stored->job;
    if (!job || !(job->open() || job->state == JobState::dead)) {
      leftovers.Delete(slice_of(key));
      return true;
    }
    if (job->state == JobState::taken && job->fence < least_fence_here) job->due_at = std::min(job->due_at, now);
    found.add_at(big_endian_in(key.substr(kIndexed.size())), *job);
    return true;
  };
  const Result<bool> read = scan(db_, db_.DefaultColumnFamily(), kIndexed, "the jobs could not be read", add);
  if (!read) return read.fault();
  index_ = std::move(found);
  return ok_status();
}

void RocksdbJobs::batch_given_up(Time now) {
  changed_.clear();
  rocksdb::WriteBatch unused;
  if (const Status loaded = load(least_fence_here_, now, unused); !loaded) return; // the next batch shows
}

Result<StageAnswer> RocksdbJobs::stage(const StageRequest& request, const std::string& message, JobBatch& batch) {
  const Result<Place> found = current(request.id);
  if (!found) return found.fault();
  const std::optional<StoredJob> job = stage_step(found->job, request, batch.now);
  if (!job) return StageAnswer{false, found->job->fingerprint};
  const BucketId bucket = bucket_of(job->expires_at, request.retention);
  if (const Status written = put(*job, *found, bucket, &message, batch); !written) return written.fault();
  buckets_.note_retention(bucket, request.retention);
  return StageAnswer{true, job->fingerprint};
}

Result<std::vector<TakenJob>> RocksdbJobs::take(const TakeRequest& request, JobBatch& batch) {
  if (const Status forgotten = forget_expired(batch); !forgotten) return forgotten.fault();
  std::vector<TakenJob> taken;
  std::optional<Fault> failed;
  for (const RecordId& id : index_.due(request, batch.now)) {
    // The taker reads the message when the batch is durable. One that moves to another bucket must be there now.
    const auto changed = changed_.find(id);
    if (changed != changed_.end() && changed->second.staged_now) continue;
    const Result<Place> found = current(id);
    if (!found) {
      // One that cannot be read must not keep the others from being taken.
      failed = found.fault();
      index_.postpone(id, batch.now + kUnreadablePause);
      continue;
    }
    const bool gone = !found->job || found->job->expired(batch.now) || !found->job->open();
    const std::optional<StoredJob> job =
        gone ? std::nullopt : take_job_step(found->job, request, batch.fences.next(), batch.now, least_fence_here_);
    Status written = ok_status();
    if (gone) {
      written = forget(id, batch);
    } else if (job) {
      written = status_of(batch.fences.take(batch.writes), "the fence could not be added to a batch");
      if (written) written = put_on(*job, *found, batch);
    }
    if (!written) {
      failed = written.fault();
      break;
    }
    if (job) taken.push_back({*job, {}, batch.now});
  }
  if (taken.empty() && failed) return *failed;
  return taken;
}

Result<FenceAnswer> RocksdbJobs::end_attempt(const Ownership& owner, AttemptEnd end, JobBatch& batch) {
  const Result<Place> found = current(owner.id);
  if (!found) return found.fault();
  const std::optional<StoredJob> job = end_attempt_step(found->job, owner.fence, std::move(end), batch.now);
  if (!job) return FenceAnswer::lost;
  if (const Status written = put_on(*job, *found, batch); !written) return written.fault();
  return FenceAnswer::done;
}

Result<JobAnswer> RocksdbJobs::operate(const RecordId& id, JobAction action, JobBatch& batch) {
  const Result<Place> found = current(id);
  if (!found) return found.fault();
  const JobStep step = operate_job_step(found->job, action, batch.now, least_fence_here_);
  const Status written = step.write ? put_on(*step.write, *found, batch) : ok_status();
  if (!written) return written.fault();
  return step.answer;
}

Status RocksdbJobs::forget_expired(JobBatch& batch) {
  for (const RecordId& id : index_.expired(batch.now, kForgottenAtOnce)) {
    if (const Status forgotten = forget(id, batch); !forgotten) return forgotten;
  }
  return ok_status();
}

Result<RocksdbJobs::Place> RocksdbJobs::current(const RecordId& id) const {
  const auto changed = changed_.find(id);
  if (changed != changed_.end()) return changed->second.place;
  return look_up(id);
}

Status RocksdbJobs::put_on(const StoredJob& job, const Place& was, JobBatch& batch) {
  return put(job, was, bucket_outliving(was.bucket, job.expires_at), nullptr, batch);
}

// Adds the state to the batch, in the one bucket the job belongs to from now on. The message is written if it is given;
// else it is there already, and moved or deleted where the state says so.
Status RocksdbJobs::put(const StoredJob& job, const Place& was, const BucketId& goes_to, const std::string* message,
                        JobBatch& batch) {
  const Result<Bucket> bucket = buckets_.ensure(goes_to);
  if (!bucket) return bucket.fault();
  rocksdb::ColumnFamilyHandle* const family = bucket->family.get();
  const std::string state_key = key_with_id(kState, job.id);
  const std::string message_key = key_with_id(kMessage, job.id);
  encoded_.clear();
  encode_job(job, encoded_);
  rocksdb::Status added = batch.writes.Put(family, state_key, encoded_);
  if (added.ok() && message != nullptr) added = batch.writes.Put(family, message_key, *message);
  if (added.ok() && !job.message_kept) added = batch.writes.Delete(family, message_key);
  if (was.job && was.bucket != goes_to) {
    // The old bucket may have ended and been dropped since the job was found there.
    const std::shared_ptr<const BucketList> live = buckets_.live();
    if (const Bucket* const old = find_in(*live, was.bucket)) {
      if (message == nullptr && job.message_kept) {
        std::string kept;
        const rocksdb::Status read = db_.Get({}, old->family.get(), message_key, &kept);
        if (!read.ok()) return fault_of(read, "the message could not be moved");
        if (added.ok()) added = batch.writes.Put(family, message_key, kept);
      }
      if (added.ok()) added = batch.writes.Delete(old->family.get(), state_key);
      if (added.ok()) added = batch.writes.Delete(old->family.get(), message_key);
    }
  }
  if (!added.ok()) return fault_of(added, "the job could not be added to a batch");
  Changed& changed = changed_[job.id];
  changed.place = {job, goes_to};
  changed.staged_now = changed.staged_now || message != nullptr;
  ++batch.records;
  return note(job, batch);
}

// Makes the index say what the job says, in memory and in the batch.
Status RocksdbJobs::note(const StoredJob& job, JobBatch& batch) {
  const std::optional<std::uint64_t> was_at = index_.place_of(job.id);
  index_.note(job);
  const std::optional<std::uint64_t> is_at = index_.place_of(job.id);
  if (was_at == is_at) return ok_status();
  rocksdb::Status added;
  if (was_at) added = batch.writes.Delete(index_key(*was_at, job.id));
  if (is_at && added.ok()) added = batch.writes.Put(index_key(*is_at, job.id), rocksdb::Slice());
  return status_of(added, "the job could not be added to a batch");
}

Status RocksdbJobs::forget(const RecordId& id, JobBatch& batch) {
  const std::optional<std::uint64_t> place = index_.place_of(id);
  if (!place) return ok_status();
  index_.forget(id);
  return status_of(batch.writes.Delete(index_key(*place, id)), "the end of a job could not be added to a batch");
}

} // namespace oncekey
