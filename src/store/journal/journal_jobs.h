// JournalJobs: the jobs of a JournalStore.
//
// A job is two entries of one bucket among the jobs' families: its state, rewritten with every step, and its message,
// written once. Which jobs are due is kept in memory (JobIndex); an entry of the store's own for each job that is
// waiting, taken or dead lets the index be filled again without reading every job there is.
//
//   "s" id:32 bytes    the state     (core/record_codec.h)
//   "m" id:32 bytes    the message
//   "job/" place:u64 (big-endian) id:32 bytes, with no value, among the store's own
//
// As with records, a step is applied under the journal's lock and answered once its batch is durable.
#pragma once

#include "core/job_store.h"
#include "store/common/job_index.h"
#include "store/journal/body_files.h"
#include "store/journal/entries.h"
#include "store/journal/fences.h"
#include "store/journal/store_clock.h"

namespace oncekey {

// How long a job whose state cannot be read is left alone.
inline constexpr Millis kUnreadablePause{60'000};

std::string message_key(const RecordId& id);

class JournalJobs final : public JobStore {
 public:
  // What the store has to say about changes. With the lock.
  struct Begin {
    std::function<Status()> may_stage; // why nothing new may be staged
    // Begins a step with so much in it. `is_ending`: of what was begun before.
    std::function<Status(std::size_t entries, std::size_t bytes, bool is_ending)> change;
  };
  // All outlive this object.
  JournalJobs(Entries& entries, BodyFiles& bodies, const StoreClock& clock, Fences& fences, Begin begin)
      : entries_(entries),
        bodies_(bodies),
        journal_(entries.journal()),
        clock_(clock),
        fences_(fences),
        begin_(std::move(begin)),
        least_fence_here_(fences.next()) {}

  void stage(StageRequest request, Done<StageAnswer> done) override;
  void take(const TakeRequest& request, Done<std::vector<TakenJob>> done) override;
  void end_attempt(const Ownership& owner, AttemptEnd end, Done<FenceAnswer> done) override;
  void find(const RecordId& id, Done<std::optional<FoundJob>> done) override;
  void operate(const RecordId& id, const std::string& route, JobAction action, std::optional<JobSeen> seen,
               Done<JobAnswer> done) override;
  void list(const JobListRequest& request, Done<JobPage> done) override;
  void count(Done<std::vector<JobCount>> done) override;

  // Fills the index; entries of jobs that are over are erased. Couriers with a fence below the next one are gone: what
  // they had taken is due at once.
  Status load();

 private:
  // A job and where it is kept.
  struct Place {
    std::optional<StoredJob> job; // nothing if there is none
    BucketId bucket;
    std::uint64_t sequence = 0; // of the batch that says so
  };

  // `message` is encoded, or a reference to its file.
  void stage(const StageRequest& request, const std::string& message, Done<StageAnswer> done);
  Result<Place> place_of(const RecordId& id, const KeyLook& found) const;
  // With the lock.
  Result<Place> look_up(const RecordId& id) const;
  // Nothing if it was deleted.
  Result<std::optional<Message>> message(const RecordId& id) const;
  Result<std::vector<TakenJob>> with_messages(std::vector<TakenJob> taken) const;
  Result<JobPage> list(const JobListRequest& request) const;
  // Applies `step`, which answers and says how far the log must be durable for that.
  template <class T>
  struct Stepped {
    T answer;
    std::uint64_t sequence = 0;
  };
  template <class T, class Step>
  void apply(Done<T> done, Step step);
  template <class T>
  void answer(std::unique_lock<std::mutex> lock, std::uint64_t sequence, Done<T> done, T value);

  // All of these need the lock.
  Result<Stepped<std::vector<TakenJob>>> take(const TakeRequest& request);
  Result<Stepped<FenceAnswer>> end_attempt(const Ownership& owner, AttemptEnd end);
  Result<Stepped<JobAnswer>> operate(const RecordId& id, JobAction action, const std::optional<JobSeen>& seen);
  // Takes jobs that have expired out of the index, some at a time.
  Status forget_expired();
  // With a message it is staged; else it goes on from where it was.
  Status put(const StoredJob& job, const Place& was, const BucketId& goes_to, const std::string* message);
  Status put_on(const StoredJob& job, const Place& was);
  Status forget(const RecordId& id);

  Entries& entries_;
  BodyFiles& bodies_;
  SegmentedLog& journal_;
  const StoreClock& clock_;
  Fences& fences_;
  const Begin begin_;
  const std::uint64_t least_fence_here_;
  JobIndex index_;
};

} // namespace oncekey
