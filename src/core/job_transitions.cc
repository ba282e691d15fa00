#include "core/job_transitions.h"

#include "core/attempt_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace oncekey {
namespace {

bool is_gone(const std::optional<StoredJob>& found, Time now) { return !found || found->expired(now); }

// A job must be there when it is due.
void stay_until_due(StoredJob& job) { job.expires_at = std::max(job.expires_at, job.due_at); }

} // namespace

std::string to_string(const AttemptResult& result) {
  return result.status == 0 ? result.reason : fmt::format("{} {}", result.status, result.reason);
}

std::optional<StoredJob> stage_step(const std::optional<StoredJob>& found, const StageRequest& request, Time now) {
  if (!is_gone(found, now)) return std::nullopt;
  StoredJob job;
  job.id = request.id;
  job.fingerprint = request.fingerprint;
  job.ordered = request.ordered;
  job.staged_at = now;
  job.due_at = now + request.delay;
  job.expires_at = now + request.retention;
  job.route = request.route;
  job.key = request.key;
  stay_until_due(job);
  return job;
}

bool is_at_work(const StoredJob& job, Time now, std::uint64_t least_fence_here) {
  return job.state == JobState::taken && job.fence >= least_fence_here && now < job.due_at;
}

std::optional<StoredJob> take_job_step(const std::optional<StoredJob>& found, const TakeRequest& request,
                                       std::uint64_t fence, Time now, std::uint64_t least_fence_here) {
  if (is_gone(found, now) || !found->open() || !found->message_kept) return std::nullopt;
  const bool left_behind =
      found->state == JobState::taken && found->fence < least_fence_here && request.overdue == Millis{0};
  if (!left_behind && now < found->due_at + request.overdue) return std::nullopt;
  StoredJob job = *found;
  job.state = JobState::taken;
  job.fence = fence;
  job.due_at = now + request.lease;
  // One lease more than it lasts: a job whose courier is gone must still be there to be taken again.
  job.expires_at = std::max(job.expires_at, now + 2 * request.lease);
  return job;
}

std::optional<StoredJob> end_attempt_step(const std::optional<StoredJob>& found, std::uint64_t fence, AttemptEnd end,
                                          Time now) {
  // That the lease is over does not matter while no other courier took the job: this one was slow.
  if (is_gone(found, now) || found->state != JobState::taken || found->fence != fence) return std::nullopt;
  StoredJob job = *found;
  if (end.result) {
    job.attempts += job.attempts < std::numeric_limits<std::uint32_t>::max() ? 1 : 0;
    if (job.tried.size() == kAttemptsKept) job.tried.erase(job.tried.begin());
    job.tried.push_back({now, std::move(end.gateway), {end.result->status, attempt_reason(end.result->reason)}});
  }
  switch (end.kind) {
    case AttemptEnd::Kind::again:
      job.state = JobState::waiting;
      job.due_at = now + end.pause;
      stay_until_due(job);
      return job;
    case AttemptEnd::Kind::delivered:
      job.state = JobState::delivered;
      job.message_kept = end.keep_message;
      break;
    case AttemptEnd::Kind::dead:
      job.state = JobState::dead;
      job.why_dead = std::move(end.why_dead);
      break;
  }
  job.ended_at = now;
  return job;
}

JobStep operate_job_step(const std::optional<StoredJob>& found, JobAction action, const std::optional<JobSeen>& seen,
                         Time now, std::uint64_t least_fence_here) {
  if (is_gone(found, now)) return {std::nullopt, JobAnswer::absent};
  if (seen && (found->state != seen->state || found->fence != seen->fence)) return {std::nullopt, JobAnswer::changed};
  if (is_at_work(*found, now, least_fence_here)) return {std::nullopt, JobAnswer::taken};
  StoredJob job = *found;
  switch (action) {
    case JobAction::retry:
      if (!job.message_kept) return {std::nullopt, JobAnswer::message_gone};
      job.state = JobState::waiting;
      job.due_at = now;
      job.ended_at = Time{};
      job.why_dead.clear();
      break;
    case JobAction::drop:
      if (job.state == JobState::delivered || job.state == JobState::dropped) return {std::nullopt, JobAnswer::over};
      job.state = JobState::dropped;
      job.message_kept = false;
      job.ended_at = now;
      break;
  }
  return {std::move(job), JobAnswer::done};
}

bool is_listed(const JobListRequest& request, const StoredJob& job, Time now) {
  if (job.expired(now)) return false;
  if (request.state && job.state_at(now) != *request.state) return false;
  if (!request.route.empty() && job.route != request.route) return false;
  if (job.staged_at < request.staged_from || job.staged_at >= request.staged_before) return false;
  return request.id_prefix.empty() || to_hex(job.id).starts_with(request.id_prefix);
}

} // namespace oncekey
