// job_transitions: what each call of a JobStore does to a job, as pure functions.
//
// The embedded stores apply these; stores that run elsewhere (SQL, Lua) say the same in their own language, and the
// conformance suite holds all of them to it. No step looks at the message. A step whose `message_kept` goes from true
// to false means that the message is deleted with the write.
#pragma once

#include "core/job_store.h"

#include <cstdint>
#include <optional>

namespace oncekey {

// The job to write; nothing if one is there. `found` is what the store has under the id, expired or not.
std::optional<StoredJob> stage_step(const std::optional<StoredJob>& found, const StageRequest& request, Time now);

// A courier is at work on it. One with a fence below `least_fence_here` was a courier of an earlier process and is
// gone; 0 where couriers of other processes may be alive.
bool is_at_work(const StoredJob& job, Time now, std::uint64_t least_fence_here);

// The job as its new owner has it; nothing if it cannot be taken now. `fence` is the next number of the store's
// counter.
std::optional<StoredJob> take_job_step(const std::optional<StoredJob>& found, const TakeRequest& request,
                                       std::uint64_t fence, Time now, std::uint64_t least_fence_here = 0);

// The job to write; nothing means `lost`.
std::optional<StoredJob> end_attempt_step(const std::optional<StoredJob>& found, std::uint64_t fence, AttemptEnd end,
                                          Time now);

struct JobStep {
  std::optional<StoredJob> write;
  JobAnswer answer = JobAnswer::absent;
};
JobStep operate_job_step(const std::optional<StoredJob>& found, JobAction action, const std::optional<JobSeen>& seen,
                         Time now, std::uint64_t least_fence_here = 0);

// Whether a listing shows it. Expired jobs are absent to every caller.
bool is_listed(const JobListRequest& request, const StoredJob& job, Time now);

} // namespace oncekey
