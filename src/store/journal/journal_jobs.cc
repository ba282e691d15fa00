#include "store/journal/journal_jobs.h"

#include "core/job_transitions.h"
#include "core/record_codec.h"

#include <algorithm>
#include <memory>

namespace oncekey {
namespace {

constexpr std::string_view kState = "s";
constexpr std::string_view kMessage = "m";
constexpr std::string_view kIndexed = "job/";
constexpr std::size_t kIndexKeyBytes = kIndexed.size() + sizeof(std::uint64_t) + sizeof(RecordId);
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

std::string message_key(const RecordId& id) { return key_with_id(kMessage, id); }

template <class T>
void JournalJobs::answer(std::unique_lock<std::mutex> lock, std::uint64_t sequence, Done<T> done, T value) {
  if (sequence <= journal_.durable()) {
    lock.unlock();
    return done(std::move(value));
  }
  journal_.when_durable(sequence,
                        [done = std::move(done), value = std::move(value)]() mutable { done(std::move(value)); });
  journal_.flush();
}

template <class T, class Step>
void JournalJobs::apply(Done<T> done, Step step) {
  if (const Status health = journal_.healthy(); !health) return done(health.fault());
  std::unique_lock lock = journal_.lock();
  Result<Stepped<T>> stepped = step();
  if (stepped) return answer(std::move(lock), stepped->sequence, std::move(done), std::move(stepped->answer));
  lock.unlock();
  done(std::move(stepped).fault());
}

void JournalJobs::stage(StageRequest request, Done<StageAnswer> done) {
  std::string message;
  encode_message(request.message, message);
  request.message = Message{};
  if (message.size() <= kLogBodyBytesMax) return stage(request, message, std::move(done));
  const RecordId id = request.id;
  bodies_.write(BodyFileKind::message, id, std::move(message),
                [this, request = std::move(request), done = std::move(done)](const Result<BodyReference>& file) {
                  if (!file) return done(file.fault());
                  std::string reference;
                  encode_body_reference(*file, reference);
                  stage(request, reference, done);
                });
}

void JournalJobs::stage(const StageRequest& request, const std::string& message, Done<StageAnswer> done) {
  if (const Status health = journal_.healthy(); !health) return done(health.fault());
  KeyLook found;
  const Status looked = entries_.look(FamilyKind::jobs, key_with_id(kState, request.id), Likely::cold, found);
  const Result<Place> was =
      looked ? place_of(request.id, found) : Result<Place>(unreadable(request.id, looked.fault()));
  const auto refuse = [&](const Fault& fault) {
    found.lock = {};
    done(fault);
  };
  if (!was) return refuse(was.fault());
  const std::optional<StoredJob> job = stage_step(was->job, request, clock_.now());
  if (!job) {
    return answer(std::move(found.lock), was->sequence, std::move(done), StageAnswer{false, was->job->fingerprint});
  }
  if (const Status may = begin_.may_stage(); !may) return refuse(may.fault());
  const Status written = put(*job, *was, bucket_of(job->expires_at, request.retention), &message);
  if (!written) return refuse(written.fault());
  answer(std::move(found.lock), journal_.newest(), std::move(done), StageAnswer{true, job->fingerprint});
}

void JournalJobs::take(const TakeRequest& request, Done<std::vector<TakenJob>> done) {
  // The usual answer needs no lock.
  if (index_.due(request, clock_.now()).empty()) return done(std::vector<TakenJob>{});
  apply<std::vector<TakenJob>>(
      [this, done = std::move(done)](Result<std::vector<TakenJob>> taken) {
        done(taken ? with_messages(*std::move(taken)) : std::move(taken));
      },
      [&] { return take(request); });
}

void JournalJobs::end_attempt(const Ownership& owner, AttemptEnd end, Done<FenceAnswer> done) {
  apply(std::move(done), [&] { return end_attempt(owner, std::move(end)); });
}

void JournalJobs::find(const RecordId& id, Done<std::optional<FoundJob>> done) {
  if (const Status health = journal_.healthy(); !health) return done(health.fault());
  std::unique_lock lock = journal_.lock();
  Result<Place> found = look_up(id);
  if (!found) {
    lock.unlock();
    return done(std::move(found).fault());
  }
  const Time now = clock_.now();
  if (!found->job || found->job->expired(now)) {
    return answer(std::move(lock), found->sequence, std::move(done), std::optional<FoundJob>{});
  }
  FoundJob answered{*std::move(found->job), std::nullopt, now};
  if (answered.job.message_kept) {
    lock.unlock();
    Result<std::optional<Message>> kept = message(id);
    lock.lock();
    if (kept) {
      answered.message = *std::move(kept);
    } else {
      answered.unreadable = std::move(kept).fault();
    }
  }
  answer(std::move(lock), found->sequence, std::move(done), std::optional(std::move(answered)));
}

void JournalJobs::operate(const RecordId& id, const std::string& /*route*/, JobAction action,
                          std::optional<JobSeen> seen, Done<JobAnswer> done) {
  apply(std::move(done), [&] { return operate(id, action, seen); });
}

void JournalJobs::list(const JobListRequest& request, Done<JobPage> done) {
  if (const Status health = journal_.healthy(); !health) return done(health.fault());
  done(list(request));
}

void JournalJobs::count(Done<std::vector<JobCount>> done) {
  if (!index_.expired(clock_.now(), 1).empty()) {
    const std::unique_lock lock = journal_.lock();
    (void)forget_expired(); // without room the next count does it
    journal_.flush();
  }
  done(index_.count());
}

Result<JournalJobs::Place> JournalJobs::place_of(const RecordId& id, const KeyLook& found) const {
  Place place;
  place.sequence = found.sequence;
  if (!found.family) return place;
  Result<StoredJob> job = decode_job(id, found.value);
  if (!job) return unreadable(id, job.fault());
  place.job = *std::move(job);
  place.bucket = found.family->bucket;
  return place;
}

Result<JournalJobs::Place> JournalJobs::look_up(const RecordId& id) const {
  KeyLook found;
  const Status looked = entries_.look_on(FamilyKind::jobs, key_with_id(kState, id), found);
  if (!looked) return unreadable(id, looked.fault());
  return place_of(id, found);
}

Result<std::optional<Message>> JournalJobs::message(const RecordId& id) const {
  KeyLook found;
  const Status looked = entries_.look(FamilyKind::jobs, message_key(id), Likely::young, found);
  if (!looked) return unreadable(id, looked.fault());
  if (!found.family) return std::optional<Message>{};
  const std::optional<BodyReference> file = take_body_reference(found.value);
  const Result<std::string> bytes =
      file ? bodies_.read(BodyFileKind::message, id, *file) : Result<std::string>(std::string());
  if (!bytes) return unreadable(id, bytes.fault());
  Result<Message> message = decode_message(file ? std::string_view(*bytes) : found.value);
  if (!message) return unreadable(id, message.fault());
  return std::optional<Message>(*std::move(message));
}

Result<std::vector<TakenJob>> JournalJobs::with_messages(std::vector<TakenJob> taken) const {
  for (TakenJob& job : taken) {
    Result<std::optional<Message>> kept = message(job.job.id);
    if (kept && *kept) {
      job.message = **std::move(kept);
    } else {
      job.unreadable = kept ? corrupt("its message is gone") : std::move(kept).fault();
    }
  }
  return taken;
}

Result<JobPage> JournalJobs::list(const JobListRequest& request) const {
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
      KeyLook looked;
      const Status read = entries_.look(FamilyKind::jobs, key_with_id(kState, id), Likely::young, looked);
      if (!read) return unreadable(id, read.fault());
      Result<Place> found = place_of(id, looked);
      if (!found) return std::move(found).fault();
      if (found->job && !add(*std::move(found->job))) return page;
    }
    page.whole = index_.size() <= request.look_max;
    return page;
  }
  const std::size_t looks_max = std::min(request.look_max, kScannedAtOnce);
  std::size_t looked = 0;
  const Status scanned =
      entries_.scan(FamilyKind::jobs, std::string(kState) + bytes_of_prefix(request.id_prefix),
                    "the jobs could not be listed", [&](std::string_view key, std::string_view value) -> Result<bool> {
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

Status JournalJobs::load() {
  const Time now = clock_.now();
  std::vector<std::pair<std::uint64_t, RecordId>> indexed;
  const auto add = [&](std::string_view key, std::string_view /*value*/) -> Result<bool> {
    const std::optional<RecordId> id = id_in_key(key, kIndexed.size() + sizeof(std::uint64_t));
    if (!id) return corrupt("an entry of the jobs that are not over does not have an id");
    indexed.emplace_back(big_endian_in(key.substr(kIndexed.size())), *id);
    return true;
  };
  const Status scanned = entries_.scan(FamilyKind::store, kIndexed, "the jobs could not be read", add);
  if (!scanned) return scanned;
  std::sort(indexed.begin(), indexed.end());

  JobIndex found;
  std::vector<std::string> over;
  const std::unique_lock lock = journal_.lock();
  for (const auto& [place, id] : indexed) {
    Result<Place> stored = look_up(id);
    if (!stored) continue; // one that cannot be read must not keep the others from being delivered
    // Of jobs that have expired, or come again since.
    if (const auto older = found.place_of(id)) over.push_back(index_key(*older, id));
    std::optional<StoredJob>& job = stored->job;
    if (!job || !(job->open() || job->state == JobState::dead)) {
      over.push_back(index_key(place, id));
      continue;
    }
    if (job->state == JobState::taken && job->fence < least_fence_here_) job->due_at = std::min(job->due_at, now);
    found.add_at(place, *job);
  }
  for (const std::string& key : over) {
    if (!journal_.fits(1, key.size())) break; // they stay until the next start
    journal_.begin_step(1, key.size());
    journal_.erase(kStoreFamily, key);
  }
  index_ = std::move(found);
  return ok_status();
}

Result<JournalJobs::Stepped<std::vector<TakenJob>>> JournalJobs::take(const TakeRequest& request) {
  const Time now = clock_.now();
  if (const Status forgotten = forget_expired(); !forgotten) return forgotten.fault();
  std::vector<TakenJob> taken;
  std::optional<Fault> failed;
  for (const RecordId& id : index_.due(request, now)) {
    const Result<Place> found = look_up(id);
    if (!found) {
      // One that cannot be read must not keep the others from being taken.
      failed = found.fault();
      index_.postpone(id, now + kUnreadablePause);
      continue;
    }
    const bool gone = !found->job || found->job->expired(now) || !found->job->open();
    const std::optional<StoredJob> job =
        gone ? std::nullopt : take_job_step(found->job, request, fences_.next(), now, least_fence_here_);
    Status written = ok_status();
    if (gone) {
      written = forget(id);
    } else if (job) {
      written = put_on(*job, *found);
      if (written) fences_.take(journal_);
    }
    if (!written) {
      failed = written.fault();
      break;
    }
    if (job) taken.push_back({*job, {}, now});
  }
  if (taken.empty() && failed) return *failed;
  const std::uint64_t sequence = taken.empty() ? 0 : journal_.newest();
  return Stepped<std::vector<TakenJob>>{std::move(taken), sequence};
}

Result<JournalJobs::Stepped<FenceAnswer>> JournalJobs::end_attempt(const Ownership& owner, AttemptEnd end) {
  const Result<Place> found = look_up(owner.id);
  if (!found) return found.fault();
  const std::optional<StoredJob> job = end_attempt_step(found->job, owner.fence, std::move(end), clock_.now());
  if (!job) return Stepped<FenceAnswer>{FenceAnswer::lost, found->sequence};
  if (const Status written = put_on(*job, *found); !written) return written.fault();
  return Stepped<FenceAnswer>{FenceAnswer::done, journal_.newest()};
}

Result<JournalJobs::Stepped<JobAnswer>> JournalJobs::operate(const RecordId& id, JobAction action,
                                                             const std::optional<JobSeen>& seen) {
  const Result<Place> found = look_up(id);
  if (!found) return found.fault();
  const JobStep step = operate_job_step(found->job, action, seen, clock_.now(), least_fence_here_);
  if (!step.write) return Stepped<JobAnswer>{step.answer, found->sequence};
  if (const Status written = put_on(*step.write, *found); !written) return written.fault();
  return Stepped<JobAnswer>{step.answer, journal_.newest()};
}

Status JournalJobs::forget_expired() {
  for (const RecordId& id : index_.expired(clock_.now(), kForgottenAtOnce)) {
    if (const Status forgotten = forget(id); !forgotten) return forgotten;
  }
  return ok_status();
}

Status JournalJobs::put_on(const StoredJob& job, const Place& was) {
  return put(job, was, bucket_outliving(was.bucket, job.expires_at), nullptr);
}

// Puts the state into the one bucket that the job belongs to from now on. The message is put if it is given; else it is
// there already, and moved or erased where the state says so. Leaves room for a fence.
Status JournalJobs::put(const StoredJob& job, const Place& was, const BucketId& goes_to, const std::string* message) {
  const std::string state_key = key_with_id(kState, job.id);
  const std::string its_message = message_key(job.id);
  const bool moves = was.job && was.bucket != goes_to;
  std::string moved;
  if (moves && message == nullptr && job.message_kept) {
    KeyLook kept;
    const Status read = entries_.look_on(FamilyKind::jobs, its_message, kept);
    if (!read || !kept.family) return unreadable(job.id, read ? corrupt("its message is gone") : read.fault());
    moved = kept.value;
    message = &moved;
  }
  std::string state;
  encode_job(job, state);
  const std::size_t bytes = state.size() + (message != nullptr ? message->size() : 0) + 4 * its_message.size() +
                            2 * kIndexKeyBytes + kFenceBytes;
  if (const Status begun = begin_.change(6 + kFenceEntries, bytes, message == nullptr); !begun) return begun;
  const Family family{FamilyKind::jobs, goes_to};
  journal_.put(family, state_key, state);
  if (message != nullptr) journal_.put(family, its_message, *message);
  if (!job.message_kept) journal_.erase(family, its_message);
  if (moves) {
    const Family old{FamilyKind::jobs, was.bucket};
    journal_.erase(old, state_key);
    journal_.erase(old, its_message);
  }
  // Makes the index say what the job says, in memory and in the log.
  const std::optional<std::uint64_t> was_at = index_.place_of(job.id);
  index_.note(job);
  const std::optional<std::uint64_t> is_at = index_.place_of(job.id);
  if (was_at == is_at) return ok_status();
  if (was_at) journal_.erase(kStoreFamily, index_key(*was_at, job.id));
  if (is_at) journal_.put(kStoreFamily, index_key(*is_at, job.id), {});
  return ok_status();
}

Status JournalJobs::forget(const RecordId& id) {
  const std::optional<std::uint64_t> place = index_.place_of(id);
  if (!place) return ok_status();
  if (const Status begun = begin_.change(1, kIndexKeyBytes, true); !begun) return begun;
  index_.forget(id);
  journal_.erase(kStoreFamily, index_key(*place, id));
  return ok_status();
}

} // namespace oncekey
