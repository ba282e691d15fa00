#include "store/rocksdb/writer.h"

#include "core/transitions.h"
#include "store/rocksdb/meta.h"

#include <rocksdb/perf_level.h>

#include <pthread.h>

#include <functional>
#include <utility>

namespace oncekey {
namespace {

constexpr QueueLimits kQueueLimits;

CallKind kind_in_queue(const Writer::Call& call) {
  return std::holds_alternative<Writer::JobCall<StageAnswer>>(call) ? CallKind::begins_work : kind_of(call);
}

// Ids are hashes: some of their bits are as good as any others.
constexpr std::size_t kSlots = 1 << 15;
// Keys that are no longer young, noted with a batch of one.
constexpr std::size_t kNotedWithABatch = 16;
std::size_t slot_of(const RecordId& id) { return std::hash<RecordId>{}(id) % kSlots; }

} // namespace

Writer::Writer(rocksdb::DB& db, Buckets& buckets, RocksdbJobs& jobs, const StoreClock& clock, WriterOptions options)
    : db_(db),
      buckets_(buckets),
      jobs_(jobs),
      clock_(clock),
      options_(std::move(options)),
      written_in_(kSlots, 0),
      thread_([this] { run(); }) {}

Writer::~Writer() {
  {
    const std::lock_guard lock(queue_mutex_);
    stopping_ = true;
  }
  queue_filled_.notify_one();
  thread_.join();
}

void Writer::start_with(UnsettledKeys unsettled, const Fences& fences) {
  unsettled_.start_with(std::move(unsettled));
  const std::lock_guard lock(queue_mutex_); // the thread takes it before it looks at the first call
  fences_ = fences;
}

void Writer::owners_here(Store::OwnersHere owners) {
  const std::lock_guard lock(queue_mutex_);
  owners_here_ = std::move(owners);
}

void Writer::submit(Call call) {
  std::optional<Fault> refusal;
  bool wake = false;
  {
    const std::lock_guard lock(queue_mutex_);
    const std::size_t bytes = body_bytes(call);
    if (failure_) {
      refusal = failure_;
    } else if (kQueueLimits.are_reached(kind_in_queue(call), bytes, queue_.size(), queued_bytes_)) {
      refusal = overloaded();
    } else {
      queued_bytes_ += bytes;
      queue_.push_back(std::move(call));
      wake = std::exchange(writer_waits_, false);
    }
  }
  if (refusal) return refuse(call, *refusal);
  if (wake) queue_filled_.notify_one();
}

Status Writer::healthy() const {
  if (!failed_.load(std::memory_order_acquire)) return ok_status();
  const std::lock_guard lock(queue_mutex_);
  return *failure_;
}

Status Writer::can_write() const {
  if (const Status health = healthy(); !health || !is_short_.load(std::memory_order_acquire)) return health;
  const std::lock_guard lock(queue_mutex_);
  return shortage_ ? Status(*shortage_) : ok_status();
}

void Writer::run() {
  pthread_setname_np(pthread_self(), "store-writer");
  rocksdb::SetPerfLevel(rocksdb::PerfLevel::kDisable); // its counters cost a few percent and are not read
  std::vector<Call> calls;
  while (take(calls)) commit(calls);
  if (failed_) return;
  batch_.Clear();
  save_clock(clock_.now());
  (void)write_batch();
}

// Waits for calls; false when there are none and never will be.
bool Writer::take(std::vector<Call>& calls) {
  calls.clear();
  std::unique_lock lock(queue_mutex_);
  while (queue_.empty() && !stopping_) {
    writer_waits_ = true;
    queue_filled_.wait(lock);
  }
  writer_waits_ = false;
  queue_.swap(calls);
  queued_bytes_ = 0;
  return !calls.empty();
}

void Writer::commit(std::vector<Call>& calls) {
  for (std::size_t begin = 0; begin < calls.size();) {
    std::size_t end = begin;
    {
      const std::unique_lock no_drops = buckets_.pin();
      const std::unique_lock no_drops_of_jobs = jobs_.buckets().pin();
      batch_.Clear();
      batch_records_ = 0;
      live_ = buckets_.live();
      const Time now = clock_.now();
      for (; end < calls.size() && batch_.GetDataSize() < kBatchBytesMax; ++end) {
        std::visit([&](auto& call) { apply_call(call, now); }, calls[end]);
      }
      if (batch_.Count() != 0) {
        // Nothing is lost without the indexes but the sight of some keys.
        write_indexes(now);
        if (!clock_saved_ || now - *clock_saved_ >= kClockSavedEvery) save_clock(now);
        // A crash before this returns leaves nothing or all of the batch; no caller has been answered yet.
        switch (write_batch()) {
          case Written::yes:
            break;
          case Written::given_up:
            give_up_batch(calls, begin, end);
            break;
          case Written::never_known:
            return;
        }
      }
      live_.reset();
    }
    jobs_.batch_done();
    forget_settled();
    answer(calls, begin, end);
    begin = end;
  }
}

void Writer::apply_call(ClaimCall& call, Time now) {
  const ClaimRequest& request = call.request;
  const Result<const Current*> found = current(request.id, &call);
  if (!found) {
    call.answer = found.fault();
    return;
  }
  const std::optional<Record>& record = (*found)->record;
  const std::optional<BucketId> was_in = record ? std::optional((*found)->bucket) : std::nullopt;
  const OwnerWorksHere owner = works_here(owners_here_, request.id, record, now);
  ClaimStep step = claim_step(record, request, fences_.next(), now, owner);
  if (step.write) {
    const Claimed* const claimed = std::get_if<Claimed>(&step.answer);
    const bool first = claimed != nullptr && !claimed->took_over;
    const BucketId goes_to = first ? bucket_of(step.write->expires_at, request.retention)
                                   : bucket_outliving(*was_in, step.write->expires_at);
    const rocksdb::Status given = claimed != nullptr ? fences_.take(batch_) : rocksdb::Status::OK();
    Status written = status_of(given, "the fence could not be added to a batch");
    if (written) written = put(request.id, *std::move(step.write), was_in, goes_to);
    if (!written) {
      call.answer = written.fault();
      return;
    }
    // Where an expired record was in the same bucket; put() has seen to the others.
    if (first && was_in == goes_to) known_[request.id].entry = entries_.add(goes_to, now, claimed->fence, request.id);
    buckets_.note_retention(goes_to, request.retention);
  }
  call.answer = std::move(step.answer);
}

template <class Wanted, class Step>
void Writer::apply_step(const RecordId& id, Wanted& call, Step step) {
  const Result<const Current*> found = current(id);
  if (!found) {
    call.answer = found.fault();
    return;
  }
  auto made = step((*found)->record);
  call.answer = made.answer;
  Status written = ok_status();
  if (made.erase) {
    written = erase(id, **found);
  } else if (made.write) {
    const BucketId bucket = (*found)->bucket;
    const BucketId goes_to = bucket_outliving(bucket, made.write->expires_at);
    written = put(id, *std::move(made.write), bucket, goes_to);
  }
  if (!written) call.answer = written.fault();
}

void Writer::apply_call(FenceCall& call, Time now) {
  apply_step(call.owner.id, call, [&](const std::optional<Record>& found) { return fence_step(found, call, now); });
}

void Writer::apply_call(OperatorCall& call, Time now) {
  apply_step(call.id, call, [&](const std::optional<Record>& found) {
    return operate_step(found, call.action, std::move(call.response), now);
  });
}

template <class T>
void Writer::apply_call(JobCall<T>& call, Time now) {
  JobBatch batch{batch_, fences_, batch_records_, now};
  call.answer = call.apply(batch);
}

Status Writer::erase(const RecordId& id, const Current& found) {
  rocksdb::Status added = unsettled_.note(id, nullptr, batch_);
  const Bucket* const bucket = find_in(*live_, found.bucket);
  if (added.ok() && bucket != nullptr) added = batch_.Delete(bucket->family.get(), key_slice(id));
  if (!added.ok()) return fault_of(added, "the end of the record could not be added to a batch");
  ++batch_records_;
  written_in_[slot_of(id)] = batch_number_;
  Current& gone = known_[id];
  gone.record.reset(); // later calls of this batch must not find it in the database
  if (gone.entry) entries_.remove(std::exchange(gone.entry, nullptr), id);
  settled_.push_back(id);
  return ok_status();
}

Result<const Writer::Current*> Writer::current(const RecordId& id, ClaimCall* claim) {
  const auto known = known_.find(id);
  if (known != known_.end()) return &known->second;
  std::optional<Stored> stored;
  if (claim != nullptr && written_in_[slot_of(id)] <= claim->seen) {
    stored = std::move(claim->found);
  } else {
    Result<std::optional<Stored>> read = buckets_.lookup(id, DecodeBody::no);
    if (!read) return std::move(read).fault();
    stored = *std::move(read);
  }
  looked_up_.record.reset();
  if (stored) looked_up_ = {std::move(stored->record), stored->bucket};
  return &looked_up_;
}

Result<rocksdb::ColumnFamilyHandle*> Writer::family_of(const BucketId& id) {
  if (const Bucket* const bucket = find_in(*live_, id)) return bucket->family.get();
  const Result<Bucket> made = buckets_.ensure(id);
  if (!made) return made.fault();
  live_ = buckets_.live();
  return made->family.get();
}

// Adds the record to the batch, in the one bucket it belongs to from now on.
Status Writer::put(const RecordId& id, Record&& record, const std::optional<BucketId>& was_in,
                   const BucketId& goes_to) {
  const Result<rocksdb::ColumnFamilyHandle*> family = family_of(goes_to);
  if (!family) return family.fault();
  encoded_.clear();
  encode_record(record, encoded_);
  rocksdb::Status added = batch_.Put(*family, key_slice(id), encoded_);
  if (added.ok() && was_in && *was_in != goes_to) {
    // The old bucket may have ended and been dropped since the record was found there.
    if (const Bucket* const old = find_in(*live_, *was_in)) added = batch_.Delete(old->family.get(), key_slice(id));
  }
  if (added.ok()) added = unsettled_.note(id, &record, batch_);
  if (!added.ok()) return fault_of(added, "the record could not be added to a batch");
  TimeEntryPtr entry;
  if (was_in != goes_to) entry = entries_.add(goes_to, record.first_received, record.fence, id);
  ++batch_records_;
  written_in_[slot_of(id)] = batch_number_;
  if (record.state != RecordState::in_progress) {
    settled_.push_back(id);
    if (record.response) {
      record.response->headers.clear();
      record.response->body.clear();
    }
  }
  Current& newest = known_[id];
  newest.record = std::move(record);
  newest.bucket = goes_to;
  if (entry) newest.entry = std::move(entry);
  return ok_status();
}

// The part of a batch that serves people who look for keys.
rocksdb::Status Writer::write_indexes(Time now) {
  rocksdb::Status added;
  entries_.write([&](const TimeEntry& entry) {
    const Bucket* const bucket = find_in(*live_, entry.bucket);
    if (bucket == nullptr || !added.ok()) return;
    // Removed before it is written again: RocksDB's estimate of how many keys there are counts every Put.
    if (entry.written) added = batch_.Delete(bucket->family.get(), entry.key);
    if (added.ok() && !entry.ids.empty()) added = batch_.Put(bucket->family.get(), entry.key, entry.ids);
  });
  // Faster than keys come in, and in pieces: a batch must not wait for a second's worth of them.
  if (added.ok()) added = unsettled_.note_old(now, 2 * batch_records_ + kNotedWithABatch, batch_);
  return added;
}

void Writer::save_clock(Time now) {
  unsettled_.save(now, batch_);
  batch_.Put(slice_of(kClockKey), encode_clock_mark(clock_.mark()));
  clock_saved_ = now;
}

Writer::Written Writer::write_batch() {
  // Asked first: RocksDB does not get over a log that it could not extend.
  const rocksdb::Status written =
      options_.has_room(batch_.GetDataSize()) ? db_.Write(durably(), &batch_) : rocksdb::Status::NoSpace("disk full");
  const bool full = written.IsNoSpace() && !options_.sync_failed();
  if (!written.ok() && !full) {
    fail("the store could not make a write durable and stops, since trying again might lose it silently: " +
         written.ToString());
    return Written::never_known;
  }
  if (full != is_short_.load(std::memory_order_relaxed)) {
    const std::lock_guard lock(queue_mutex_);
    shortage_.reset();
    if (full) shortage_ = unavailable("the store cannot write, as long as its disk is full: " + written.ToString());
    is_short_.store(full, std::memory_order_release);
  }
  if (full) return Written::given_up;
  last_batch_.store(batch_number_, std::memory_order_release);
  ++batch_number_;
  syncs_.fetch_add(1, std::memory_order_relaxed);
  writes_.fetch_add(batch_records_, std::memory_order_relaxed);
  return Written::yes;
}

// A record of the batch may be in the log all the same, whole, and come back after a crash. That is harmless: a claim
// that was answered with a fault executed nothing and is found abandoned; an ending that was reported as not written is
// found written.
void Writer::give_up_batch(std::vector<Call>& calls, std::size_t begin, std::size_t end) {
  known_.clear(); // a cache of what the database has, which is right again without the batch
  settled_.clear();
  entries_.clear();
  clock_saved_.reset();
  fences_.batch_given_up();
  jobs_.batch_given_up(clock_.now());
  Result<UnsettledKeys> unsettled = options_.load_unsettled();
  if (unsettled) unsettled_.start_with(*std::move(unsettled));
  const Fault fault = unavailable("the store's disk is full: nothing was written");
  for (std::size_t at = begin; at < end; ++at) {
    std::visit([&](auto& call) { call.answer = fault; }, calls[at]);
  }
}

void Writer::answer(std::vector<Call>& calls, std::size_t begin, std::size_t end) {
  for (std::size_t at = begin; at < end; ++at) {
    if (auto* claim = std::get_if<ClaimCall>(&calls[at])) complete_answer(*claim);
    std::visit([](auto& call) { call.done(*std::move(call.answer)); }, calls[at]);
  }
}

void Writer::complete_answer(ClaimCall& call) {
  Result<ClaimAnswer>& answer = *call.answer;
  Found* const found = answer ? std::get_if<Found>(&*answer) : nullptr;
  if (found == nullptr || !found->record->response) return;
  // Completed since its caller looked: the steps work without bodies, and this answer needs one.
  Result<std::optional<Stored>> whole = buckets_.lookup(call.request.id, DecodeBody::yes);
  if (!whole) {
    answer = std::move(whole).fault();
  } else if (*whole) {
    *found = Found{std::move((*whole)->record), found->now};
  } else {
    // Its bucket has been dropped meanwhile: it has expired. The next claim will find it gone.
    answer = unavailable("the record expired while it was read; try again");
  }
}

void Writer::forget_settled() {
  for (const RecordId& id : settled_) {
    const auto known = known_.find(id);
    if (known == known_.end()) continue;
    const std::optional<Record>& record = known->second.record;
    if (!record || record->state != RecordState::in_progress) known_.erase(known);
  }
  settled_.clear();
  while (known_.size() > kOwnersKeptMax) known_.erase(known_.begin());
}

void Writer::fail(const std::string& reason) {
  std::vector<Call> never_answered;
  {
    const std::lock_guard lock(queue_mutex_);
    failure_ = unavailable(reason);
    failed_.store(true, std::memory_order_release);
    never_answered.swap(queue_);
  }
  if (options_.on_fatal) options_.on_fatal(reason);
}

} // namespace oncekey
