// JobStore: where a gateway keeps the messages that it has promised to deliver. Store::jobs() gives it.
//
// `stage` writes the job and its message in one atomic step, unless the id is known. `take` leases due jobs to one
// courier at a time; the courier names its fence when it ends the attempt. Of several couriers, and of any number of
// gateways on one store, one has a job at a time.
//
// Threads, durability and faults are as in core/store.h: any thread may call, the answer comes once, through a callback
// that must not block, when the effect is as durable as the store's level says. A fault of kind `timeout` means that
// the effect is unknown; every other kind means that nothing was changed.
//
// Limits. A job stays until it expires (StageRequest::retention), whatever its state. One that is taken, or waits for
// its next attempt, does not expire before that.
#pragma once

#include "core/job.h"
#include "core/store.h"

#include <oncekey/result.h>
#include <oncekey/time.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

struct StageRequest {
  RecordId id;
  Fingerprint fingerprint;
  std::string route;
  std::string key;
  bool ordered = false;
  Millis delay{};     // not due before
  Millis retention{}; // how long the job and its event id are known, from now on
  Message message;
};

struct StageAnswer {
  bool staged = false;     // false: a job with this id was there, and nothing was changed
  Fingerprint fingerprint; // of the job that is there now
};

struct TakeRequest {
  std::string route;
  std::size_t limit = 1;
  Millis lease{};
  Millis overdue{}; // only jobs that have been due for this long
};

struct TakenJob {
  StoredJob job; // job.fence is the caller's, and job.due_at the end of its lease
  Message message;
  Time now{};                        // the store's clock at the take
  std::optional<Fault> unreadable{}; // why the message could not be read; it is empty then
};

// How a courier's turn with a job ended.
struct AttemptEnd {
  enum class Kind {
    delivered, // the receiver accepted it
    again,     // it waits, and is due after the pause
    dead,      // a dead letter, for the reason given
  };
  Kind kind = Kind::delivered;
  // Nothing if no attempt was made: then neither the count nor what was tried changes.
  std::optional<AttemptResult> result{};
  std::string gateway{};    // the caller's name
  Millis pause{};           // again
  std::string why_dead{};   // dead
  bool keep_message = true; // delivered: false deletes the message
  std::string route{};      // the job's, as it was taken
};

struct FoundJob {
  StoredJob job;
  std::optional<Message> message; // nothing if it was deleted, or cannot be read
  Time now{};
  std::optional<Fault> unreadable{}; // why it cannot
};

enum class JobAction {
  retry, // deliver it now: a dead letter, one that waits for its next attempt, or one that was delivered
  drop,  // do not deliver it any more; the message is deleted, the event id stays known
};
std::string_view to_string(JobAction action);

enum class JobAnswer {
  done,
  absent,       // no such job, or it has expired
  taken,        // a courier is at work on it and its lease is live: wait for the end of the attempt
  over,         // drop: it was delivered or dropped already
  message_gone, // retry: its message was deleted (dropped, or delivered with keep_delivered = false)
  changed,      // it is not as it was seen
};

// How a job was when an operator decided about it.
struct JobSeen {
  JobState state = JobState::waiting; // StoredJob::state
  std::uint64_t fence = 0;
};

struct JobListRequest {
  std::optional<JobState> state; // as state_at() gives it
  std::string route;             // of this route alone; empty for all
  std::string id_prefix;         // hex digits the id begins with; empty for all
  Time staged_from = Time::min();
  Time staged_before = Time::max();
  std::size_t limit = 100;
  // At most about so many jobs are looked at. A store may stop earlier.
  std::size_t look_max = 100'000;
};

struct JobPage {
  std::vector<StoredJob> jobs; // in no promised order
  bool whole = true;           // there is no other job that fits
};

struct JobCount {
  std::string route;
  JobState state = JobState::waiting; // waiting, taken (its lease may be over) or dead
  std::uint64_t count = 0;
  friend bool operator==(const JobCount&, const JobCount&) = default;
};

class JobStore {
 public:
  virtual ~JobStore() = default;

  // Absent and expired jobs are staged; others stay as they are. Job and message are written in one step.
  virtual void stage(StageRequest request, Done<StageAnswer> done) = 0;

  // Makes the caller the owner of due jobs of a route, those due longest first. Of ordered jobs with the same order
  // only the first is taken, until it is delivered, dropped or dead. May be fewer than there are. A store that belongs
  // to one process takes jobs of an earlier process at once, without waiting for the end of their leases: that process
  // is gone. A job whose message cannot be read is taken like the others: it must not keep them from being taken.
  virtual void take(const TakeRequest& request, Done<std::vector<TakenJob>> done) = 0;

  // `lost` if another courier has taken the job since, or the attempt was ended already.
  virtual void end_attempt(const Ownership& owner, AttemptEnd end, Done<FenceAnswer> done) = 0;

  // The job with its message; nothing for absent and expired ones.
  virtual void find(const RecordId& id, Done<std::optional<FoundJob>> done) = 0;

  // What an operator decides. `route` is the job's, as it was found. With `seen`, a job that a courier or another
  // operator has changed since then is left as it is.
  virtual void operate(const RecordId& id, const std::string& route, JobAction action, std::optional<JobSeen> seen,
                       Done<JobAnswer> done) = 0;

  // For people; may take long on large stores.
  virtual void list(const JobListRequest& request, Done<JobPage> done) = 0;

  // How many jobs are waiting, taken and dead, by route; those that are none are left out. Cheap enough to be asked
  // every few seconds, and may be some seconds late. This is also how a gateway finds routes that it does not have.
  virtual void count(Done<std::vector<JobCount>> done) = 0;
};

} // namespace oncekey
