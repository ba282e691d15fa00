#include "store/rocksdb/writer.h"

#include "core/transitions.h"
#include "store/rocksdb/meta.h"
#include "store/rocksdb/rocksdb_fault.h"

#include <rocksdb/perf_level.h>

#include <pthread.h>

#include <algorithm>
#include <functional>
#include <utility>

namespace oncekey {
namespace {

std::size_t body_bytes(const Writer::Call& call) {
  if (const auto* fence = std::get_if<Writer::FenceCall>(&call)) return fence->response.body.size();
  if (const auto* by_hand = std::get_if<Writer::OperatorCall>(&call)) return by_hand->response.body.size();
  if (const auto* attempt = std::get_if<Writer::AttemptCall>(&call)) return attempt->end.message.body.size();
  const auto* claim = std::get_if<Writer::ClaimCall>(&call);
  if (claim != nullptr && claim->request.staged) return claim->request.staged->message.body.size();
  return 0;
}

void refuse(Writer::Call call, const Fault& fault) {
  std::visit([&](auto& refused) { refused.done(fault); }, call);
}

// Ids are hashes: some of their bits are as good as any others.
constexpr std::size_t kSlots = 1 << 15;
// Keys that are no longer young, noted with a batch of one.
constexpr std::size_t kNotedWithABatch = 16;
std::size_t slot_of(const RecordId& id) { return std::hash<RecordId>{}(id) % kSlots; }

} // namespace

Writer::Writer(rocksdb::DB& db, Buckets& buckets, const StoreClock& clock, WriterOptions options)
    : db_(db), buckets_(buckets), clock_(clock), options_(std::move(options)), written_in_(kSlots, 0), thread_([this] {
        run();
      }) {}

Writer::~Writer() {
  {
    const std::lock_guard lock(queue_mutex_);
    stopping_ = true;
  }
  queue_filled_.notify_one();
  thread_.join();
}

void Writer::start_with(StagedIndex jobs, UnsettledKeys unsettled, const Fences& fences) {
  unsettled_.start_with(std::move(unsettled));
  const std::lock_guard lock(queue_mutex_); // the thread takes it before it looks at the first call
  jobs_ = std::move(jobs);
  fences_ = fences;
  jobs_size_.store(jobs_.size(), std::memory_order_relaxed);
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
    const bool claims = std::holds_alternative<ClaimCall>(call);
    const std::size_t calls_max = claims ? kQueuedCallsMax : kQueuedCallsHardMax;
    const bool bytes_full =
        claims ? queued_bytes_ >= kQueuedBytesMax : body_bytes(call) > 0 && queued_bytes_ >= kQueuedBytesHardMax;
    if (failure_) {
      refusal = failure_;
    } else if (queue_.size() >= calls_max || bytes_full) {
      refusal = unavailable("the store is overloaded: too many writes wait for the disk; try again later");
    } else {
      queued_bytes_ += body_bytes(call);
      queue_.push_back(std::move(call));
      wake = std::exchange(writer_waits_, false);
    }
  }
  if (refusal) return refuse(std::move(call), *refusal);
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

std::map<int, Millis> Writer::retentions_in_use() const {
  const std::lock_guard lock(retentions_mutex_);
  return retentions_;
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
      batch_.Clear();
      batch_records_ = 0;
      live_ = buckets_.live();
      const Time now = clock_.now();
      end = apply(calls, begin, now);
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
    jobs_size_.store(jobs_.size(), std::memory_order_relaxed);
    forget_settled();
    answer(calls, begin, end);
    begin = end;
  }
}

// Applies calls from `begin` on until the batch is full; returns where it stopped.
std::size_t Writer::apply(std::vector<Call>& calls, std::size_t begin, Time now) {
  std::size_t at = begin;
  for (; at < calls.size() && batch_.GetDataSize() < kBatchBytesMax; ++at) {
    std::visit([&](auto& call) { apply_call(call, now); }, calls[at]);
  }
  return at;
}

void Writer::apply_call(ClaimCall& call, Time now) {
  const ClaimRequest& request = call.request;
  const Result<const Current*> found = current_for(call);
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
    const Status written = given.ok() ? put(request.id, *std::move(step.write), was_in, goes_to)
                                      : fault_of(given, "the fence could not be added to a batch");
    if (!written) {
      call.answer = written.fault();
      return;
    }
    // Where an expired record was in the same bucket; put() has seen to the others.
    if (first && was_in == goes_to) known_[request.id].entry = entries_.add(goes_to, now, claimed->fence, request.id);
    note_retention(goes_to, request.retention);
  }
  call.answer = std::move(step.answer);
}

void Writer::note_retention(const BucketId& bucket, Millis retention) {
  // Only this thread changes the map, so it may look without the lock.
  const auto longest = retentions_.find(bucket.width_log2);
  if (longest != retentions_.end() && longest->second >= retention) return;
  const std::lock_guard lock(retentions_mutex_);
  retentions_[bucket.width_log2] = retention;
}

void Writer::apply_call(FenceCall& call, Time now) {
  const Result<const Current*> found = current(call.owner.id);
  if (!found) {
    call.answer = found.fault();
    return;
  }
  const std::optional<Record>& record = (*found)->record;
  FenceStep step;
  switch (call.verb) {
    case FenceVerb::renew:
      step = renew_step(record, call.owner.fence, call.lease, now);
      break;
    case FenceVerb::complete:
      step = complete_step(record, call.owner.fence, std::move(call.response), now);
      break;
    case FenceVerb::release:
      step = release_step(record, call.owner.fence, now);
      break;
    case FenceVerb::hold:
      step = hold_step(record, call.owner.fence, Holder::owner, now);
      break;
    case FenceVerb::hold_found:
      step = hold_step(record, call.owner.fence, Holder::finder, now);
      break;
  }
  call.answer = step.answer;
  if (const Status written = write_on(call.owner.id, step, **found); !written) {
    call.answer = written.fault();
  }
}

void Writer::apply_call(AttemptCall& call, Time now) {
  const Result<const Current*> found = current(call.owner.id);
  if (!found) {
    call.answer = found.fault();
    return;
  }
  FenceStep step = end_attempt_step((*found)->record, call.owner.fence, std::move(call.end), now);
  call.answer = step.answer;
  if (const Status written = write_on(call.owner.id, step, **found); !written) {
    call.answer = written.fault();
  }
}

void Writer::apply_call(TakeCall& call, Time now) {
  std::vector<TakenJob> taken;
  std::optional<Fault> unreadable;
  for (const RecordId& id : jobs_.due(call.request.route, now, call.request.limit)) {
    const Result<const Current*> found = current(id);
    if (!found) {
      // One that cannot be read must not keep the others from being taken.
      unreadable = Fault{found.fault().kind, "job " + to_hex(id) + ": " + found.fault().message};
      jobs_.postpone(id, now + kUnreadablePause);
      continue;
    }
    std::optional<Record> record = take_step((*found)->record, call.request.lease, fences_.next(), now);
    if (!record) { // it has expired
      forget_job(id);
      continue;
    }
    const rocksdb::Status given = fences_.take(batch_);
    const Status written =
        given.ok() ? put_on(id, Record(*record), **found) : fault_of(given, "the fence could not be added to a batch");
    if (!written) {
      unreadable = written.fault();
      break;
    }
    taken.push_back({id, *std::move(record), now});
  }
  if (taken.empty() && unreadable) {
    call.answer = *unreadable;
  } else {
    call.answer = std::move(taken);
  }
}

template <class Step>
Status Writer::write_on(const RecordId& id, Step& step, const Current& found) {
  if (step.erase) return erase(id, found);
  if (step.write) return put_on(id, *std::move(step.write), found);
  return ok_status();
}

Status Writer::put_on(const RecordId& id, Record&& record, const Current& found) {
  const BucketId bucket = found.bucket;
  const BucketId goes_to = bucket_outliving(bucket, record.expires_at);
  return put(id, std::move(record), bucket, goes_to);
}

Status Writer::erase(const RecordId& id, const Current& found) {
  rocksdb::Status added = found.record->staged ? forget_job(id) : unsettled_.note(id, nullptr, batch_);
  for (const Bucket& bucket : *live_) {
    if (added.ok() && bucket.id == found.bucket) added = batch_.Delete(bucket.family.get(), key_slice(id));
  }
  if (!added.ok()) return fault_of(added, "the end of the record could not be added to a batch");
  ++batch_records_;
  written_in_[slot_of(id)] = batch_number_;
  Current& gone = known_[id];
  gone.record.reset(); // later calls of this batch must not find it in the database
  if (gone.entry) entries_.remove(std::exchange(gone.entry, nullptr), id);
  settled_.push_back(id);
  return ok_status();
}

void Writer::apply_call(OperatorCall& call, Time now) {
  const Result<const Current*> found = current(call.id);
  if (!found) {
    call.answer = found.fault();
    return;
  }
  OperatorStep step = operate_step((*found)->record, call.action, std::move(call.response), now);
  call.answer = step.answer;
  if (const Status written = write_on(call.id, step, **found); !written) call.answer = written.fault();
}

Result<const Writer::Current*> Writer::current(const RecordId& id) {
  const auto known = known_.find(id);
  if (known != known_.end()) return &known->second;
  return read_current(id);
}

Result<const Writer::Current*> Writer::current_for(ClaimCall& call) {
  const auto known = known_.find(call.request.id);
  if (known != known_.end()) return &known->second;
  if (written_in_[slot_of(call.request.id)] > call.seen) return read_current(call.request.id);
  return keep(std::move(call.found));
}

Result<const Writer::Current*> Writer::read_current(const RecordId& id) {
  Result<std::optional<Stored>> stored = buckets_.lookup(id, DecodeBody::no);
  if (!stored) return std::move(stored).fault();
  return keep(*std::move(stored));
}

const Writer::Current* Writer::keep(std::optional<Stored> stored) {
  looked_up_.record.reset();
  if (stored) looked_up_ = {std::move(stored->record), stored->bucket};
  return &looked_up_;
}

Result<rocksdb::ColumnFamilyHandle*> Writer::family_of(const BucketId& id) {
  for (const Bucket& bucket : *live_) {
    if (bucket.id == id) return bucket.family.get();
  }
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
    for (const Bucket& old : *live_) {
      if (old.id == *was_in) added = batch_.Delete(old.family.get(), key_slice(id));
    }
  }
  if (added.ok()) added = record.staged ? note_job(id, record) : unsettled_.note(id, &record, batch_);
  if (!added.ok()) return fault_of(added, "the record could not be added to a batch");
  TimeEntryPtr entry;
  if (was_in != goes_to) entry = entries_.add(goes_to, record.first_received, record.fence, id);
  ++batch_records_;
  written_in_[slot_of(id)] = batch_number_;
  if (record.staged) {
    settled_.push_back(id); // no owner's: there may be very many, with their messages
  } else if (record.state != RecordState::in_progress) {
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

rocksdb::Status Writer::note_job(const RecordId& id, const Record& record) {
  if (record.state != RecordState::in_progress) return forget_job(id);
  if (jobs_.note(id, record) != StagedIndex::Change::added) return rocksdb::Status::OK();
  return batch_.Put(job_key(*jobs_.place_of(id), id), rocksdb::Slice());
}

rocksdb::Status Writer::forget_job(const RecordId& id) {
  const std::optional<std::uint64_t> place = jobs_.place_of(id);
  if (!place) return rocksdb::Status::OK();
  jobs_.forget(id);
  return batch_.Delete(job_key(*place, id));
}

// The part of a batch that serves people who look for keys.
rocksdb::Status Writer::write_indexes(Time now) {
  rocksdb::Status added;
  entries_.write([&](const TimeEntry& entry) {
    for (const Bucket& bucket : *live_) {
      if (bucket.id != entry.bucket || !added.ok()) continue;
      // Removed before it is written again: RocksDB's estimate of how many keys there are counts every Put.
      if (entry.written) added = batch_.Delete(bucket.family.get(), entry.key);
      if (added.ok() && !entry.ids.empty()) added = batch_.Put(bucket.family.get(), entry.key, entry.ids);
    }
  });
  // Faster than keys come in, and in pieces: a batch must not wait for a second's worth of them.
  if (added.ok()) added = unsettled_.note_old(now, 2 * batch_records_ + kNotedWithABatch, batch_);
  return added;
}

void Writer::save_clock(Time now) {
  unsettled_.save(now, batch_);
  batch_.Put(rocksdb::Slice(kClockKey.data(), kClockKey.size()), encode_clock_mark(clock_.mark()));
  clock_saved_ = now;
}

Writer::Written Writer::write_batch() {
  rocksdb::WriteOptions durable;
  durable.sync = true;
  // Asked first: RocksDB does not get over a log that it could not extend.
  const rocksdb::Status written =
      options_.has_room(batch_.GetDataSize()) ? db_.Write(durable, &batch_) : rocksdb::Status::NoSpace("disk full");
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
  Result<StagedIndex> jobs = options_.load_jobs();
  if (jobs) jobs_ = *std::move(jobs);
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
  if (found != nullptr && found->record->response && !found->record->staged) {
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
}

void Writer::forget_settled() {
  for (const RecordId& id : settled_) {
    const auto known = known_.find(id);
    if (known == known_.end()) continue;
    const std::optional<Record>& record = known->second.record;
    if (!record || record->staged || record->state != RecordState::in_progress) known_.erase(known);
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
