#include "store/rocksdb/job_table.h"

#include "core/job_transitions.h"
#include "core/record_codec.h"
#include "store/rocksdb/meta.h"
#include "store/rocksdb/rocksdb_fault.h"

#include <rocksdb/iterator.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

namespace oncekey {
namespace {

constexpr char kState = 's';
constexpr char kMessage = 'm';
// Expired jobs taken out of the index by one call.
constexpr std::size_t kForgottenAtOnce = 64;
// A listing is answered on its caller's thread: so many states take some ten milliseconds.
constexpr std::size_t kScannedAtOnce = 20'000;

std::string key_of(char kind, const RecordId& id) {
  std::string key(1, kind);
  const rocksdb::Slice bytes = key_slice(id);
  return key.append(bytes.data(), bytes.size());
}

Fault unreadable(const RecordId& id, const Fault& fault) {
  return Fault{fault.kind, "job " + to_hex(id) + ": " + fault.message};
}

} // namespace

Result<std::optional<JobTable::Place>> JobTable::lookup(const RecordId& id) const {
  rocksdb::PinnableSlice value;
  const Result<std::optional<BucketId>> bucket = buckets_.get(key_of(kState, id), value);
  if (!bucket) return unreadable(id, bucket.fault());
  if (!*bucket) return std::optional<Place>{};
  Result<StoredJob> job = decode_job(id, value.ToStringView());
  if (!job) return unreadable(id, job.fault());
  return std::optional<Place>(Place{*std::move(job), **bucket});
}

Result<std::optional<Message>> JobTable::message(const RecordId& id) const {
  rocksdb::PinnableSlice value;
  const Result<std::optional<BucketId>> bucket = buckets_.get(key_of(kMessage, id), value);
  if (!bucket) return unreadable(id, bucket.fault());
  if (!*bucket) return std::optional<Message>{};
  Result<Message> message = decode_message(value.ToStringView());
  if (!message) return unreadable(id, message.fault());
  return std::optional<Message>(*std::move(message));
}

Result<JobPage> JobTable::list(const JobListRequest& request, Time now) const {
  JobPage page;
  // False when the page is full.
  const auto add = [&](StoredJob job) {
    if (!is_listed(request, job, now)) return true;
    if (page.jobs.size() == request.limit) return false;
    page.jobs.push_back(std::move(job));
    return true;
  };
  if (request.state && *request.state != JobState::delivered && *request.state != JobState::dropped) {
    for (const RecordId& id : index_.list(request, now)) {
      Result<std::optional<Place>> found = lookup(id);
      if (!found) return std::move(found).fault();
      if (*found && !add(std::move((*found)->job))) page.whole = false;
      if (!page.whole) return page;
    }
    page.whole = index_.size() <= request.look_max;
    return page;
  }
  rocksdb::ReadOptions scan;
  scan.fill_cache = false; // a scan would push out what others need
  const std::string prefix = kState + bytes_of_prefix(request.id_prefix);
  const std::shared_ptr<const BucketList> live = buckets_.live();
  const std::size_t looks_max = std::min(request.look_max, kScannedAtOnce);
  std::size_t looked = 0;
  for (const Bucket& bucket : *live) {
    const std::unique_ptr<rocksdb::Iterator> at(db_.NewIterator(scan, bucket.family.get()));
    for (at->Seek(prefix); at->Valid() && at->key().starts_with(prefix); at->Next()) {
      RecordId id;
      if (at->key().size() != 1 + id.bytes.size()) return corrupt("a stored job's key does not have 33 bytes");
      std::memcpy(id.bytes.data(), at->key().data() + 1, id.bytes.size());
      Result<StoredJob> job = decode_job(id, at->value().ToStringView());
      if (!job) return unreadable(id, job.fault());
      page.whole = looked++ < looks_max && add(*std::move(job));
      if (!page.whole) return page;
    }
    if (!at->status().ok()) return fault_of(at->status(), "the jobs could not be listed");
  }
  return page;
}

Status JobTable::load(std::uint64_t least_fence_here, Time now, rocksdb::WriteBatch& leftovers) {
  least_fence_here_ = least_fence_here;
  JobIndex found;
  const std::unique_ptr<rocksdb::Iterator> at(db_.NewIterator(rocksdb::ReadOptions()));
  for (at->Seek(rocksdb::Slice(kJobPrefix.data(), kJobPrefix.size())); at->Valid(); at->Next()) {
    const std::optional<JobPlace> entry = parse_job_key(at->key().ToStringView());
    if (!entry) break;
    Result<std::optional<Place>> stored = lookup(entry->id);
    if (!stored) return std::move(stored).fault();
    const bool over = !*stored || !((*stored)->job.open() || (*stored)->job.state == JobState::dead);
    // Of jobs that have expired, or come again since.
    if (const auto older = found.place_of(entry->id)) leftovers.Delete(job_key(*older, entry->id));
    if (over) {
      leftovers.Delete(at->key());
      continue;
    }
    StoredJob& job = (*stored)->job;
    if (job.state == JobState::taken && job.fence < least_fence_here) job.due_at = std::min(job.due_at, now);
    found.add_at(entry->place, job);
  }
  if (!at->status().ok()) return fault_of(at->status(), "the jobs could not be read");
  index_ = std::move(found);
  return ok_status();
}

void JobTable::batch_given_up(Time now) {
  changed_.clear();
  rocksdb::WriteBatch unused;
  if (const Status loaded = load(least_fence_here_, now, unused); !loaded) return; // the next batch shows
}

std::map<int, Millis> JobTable::retentions_in_use() const {
  const std::lock_guard lock(retentions_mutex_);
  return retentions_;
}

Result<StageAnswer> JobTable::stage(const StageRequest& request, const std::string& message, JobBatch& batch) {
  const Result<std::optional<Place>> found = current(request.id);
  if (!found) return found.fault();
  const std::optional<StoredJob> known = *found ? std::optional((*found)->job) : std::nullopt;
  const std::optional<StoredJob> job = stage_step(known, request, batch.now);
  if (!job) return StageAnswer{false, known->fingerprint};
  const BucketId bucket = bucket_of(job->expires_at, request.retention);
  const std::optional<BucketId> was_in = *found ? std::optional((*found)->bucket) : std::nullopt;
  if (const Status written = put(*job, was_in, bucket, &message, batch); !written) return written.fault();
  const std::lock_guard lock(retentions_mutex_);
  Millis& longest = retentions_[bucket.width_log2];
  longest = std::max(longest, request.retention);
  return StageAnswer{true, job->fingerprint};
}

Result<std::vector<TakenJob>> JobTable::take(const TakeRequest& request, JobBatch& batch) {
  if (const Status forgotten = forget_expired(batch); !forgotten) return forgotten.fault();
  std::vector<TakenJob> taken;
  std::optional<Fault> failed;
  for (const RecordId& id : index_.due(request, batch.now)) {
    // The taker reads the message when the batch is durable. One that moves to another bucket must be there now.
    const auto changed = changed_.find(id);
    if (changed != changed_.end() && changed->second.staged_now) continue;
    const Result<std::optional<Place>> found = current(id);
    if (!found) {
      // One that cannot be read must not keep the others from being taken.
      failed = found.fault();
      index_.postpone(id, batch.now + kUnreadablePause);
      continue;
    }
    const bool gone = !*found || (*found)->job.expired(batch.now) || !(*found)->job.open();
    const std::optional<StoredJob> job =
        gone ? std::nullopt : take_job_step((*found)->job, request, batch.fences.next(), batch.now, least_fence_here_);
    Status written = ok_status();
    if (gone) {
      written = forget(id, batch);
    } else if (job) {
      const rocksdb::Status given = batch.fences.take(batch.writes);
      written = given.ok() ? put_on(*job, **found, batch) : fault_of(given, "the fence could not be added to a batch");
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

Result<FenceAnswer> JobTable::end_attempt(const Ownership& owner, AttemptEnd end, JobBatch& batch) {
  const Result<std::optional<Place>> found = current(owner.id);
  if (!found) return found.fault();
  if (!*found) return FenceAnswer::lost;
  const std::optional<StoredJob> job = end_attempt_step((*found)->job, owner.fence, std::move(end), batch.now);
  if (!job) return FenceAnswer::lost;
  if (const Status written = put_on(*job, **found, batch); !written) return written.fault();
  return FenceAnswer::done;
}

Result<JobAnswer> JobTable::operate(const RecordId& id, JobAction action, JobBatch& batch) {
  const Result<std::optional<Place>> found = current(id);
  if (!found) return found.fault();
  if (!*found) return JobAnswer::absent;
  const JobStep step = operate_job_step((*found)->job, action, batch.now, least_fence_here_);
  if (step.write) {
    if (const Status written = put_on(*step.write, **found, batch); !written) return written.fault();
  }
  return step.answer;
}

Status JobTable::forget_expired(JobBatch& batch) {
  for (const RecordId& id : index_.expired(batch.now, kForgottenAtOnce)) {
    if (const Status forgotten = forget(id, batch); !forgotten) return forgotten;
  }
  return ok_status();
}

Result<std::optional<JobTable::Place>> JobTable::current(const RecordId& id) const {
  const auto changed = changed_.find(id);
  if (changed != changed_.end()) return std::optional(changed->second.place);
  return lookup(id);
}

Status JobTable::put_on(const StoredJob& job, const Place& was, JobBatch& batch) {
  return put(job, was.bucket, bucket_outliving(was.bucket, job.expires_at), nullptr, batch);
}

// Adds the state to the batch, in the one bucket the job belongs to from now on. The message is written if it is given;
// else it is there already, and moved or deleted where the state says so.
Status JobTable::put(const StoredJob& job, const std::optional<BucketId>& was_in, const BucketId& goes_to,
                     const std::string* message, JobBatch& batch) {
  const Result<Bucket> bucket = buckets_.ensure(goes_to);
  if (!bucket) return bucket.fault();
  rocksdb::ColumnFamilyHandle* const family = bucket->family.get();
  const std::string message_key = key_of(kMessage, job.id);
  encoded_.clear();
  encode_job(job, encoded_);
  rocksdb::Status added = batch.writes.Put(family, key_of(kState, job.id), encoded_);
  if (added.ok() && message != nullptr) added = batch.writes.Put(family, message_key, *message);
  if (added.ok() && !job.message_kept) added = batch.writes.Delete(family, message_key);
  if (was_in && *was_in != goes_to) {
    // The old bucket may have ended and been dropped since the job was found there.
    if (rocksdb::ColumnFamilyHandle* const old = live_family(*was_in)) {
      if (message == nullptr && job.message_kept) {
        std::string kept;
        const rocksdb::Status read = db_.Get({}, old, message_key, &kept);
        if (!read.ok()) return fault_of(read, "the message could not be moved");
        if (added.ok()) added = batch.writes.Put(family, message_key, kept);
      }
      if (added.ok()) added = batch.writes.Delete(old, key_of(kState, job.id));
      if (added.ok()) added = batch.writes.Delete(old, message_key);
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
Status JobTable::note(const StoredJob& job, JobBatch& batch) {
  const std::optional<std::uint64_t> was_at = index_.place_of(job.id);
  index_.note(job);
  const std::optional<std::uint64_t> is_at = index_.place_of(job.id);
  if (was_at == is_at) return ok_status();
  rocksdb::Status added;
  if (was_at) added = batch.writes.Delete(job_key(*was_at, job.id));
  if (is_at && added.ok()) added = batch.writes.Put(job_key(*is_at, job.id), rocksdb::Slice());
  return added.ok() ? ok_status() : Status(fault_of(added, "the job could not be added to a batch"));
}

Status JobTable::forget(const RecordId& id, JobBatch& batch) {
  const std::optional<std::uint64_t> place = index_.place_of(id);
  if (!place) return ok_status();
  index_.forget(id);
  const rocksdb::Status added = batch.writes.Delete(job_key(*place, id));
  return added.ok() ? ok_status() : Status(fault_of(added, "the end of a job could not be added to a batch"));
}

rocksdb::ColumnFamilyHandle* JobTable::live_family(const BucketId& bucket) const {
  const std::shared_ptr<const BucketList> live = buckets_.live();
  const auto at = std::find_if(live->begin(), live->end(), [&](const Bucket& each) { return each.id == bucket; });
  return at == live->end() ? nullptr : at->family.get();
}

} // namespace oncekey
