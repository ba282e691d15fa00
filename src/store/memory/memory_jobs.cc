#include "store/memory/memory_jobs.h"

#include "core/job_transitions.h"

#include <utility>

namespace oncekey {
namespace {

std::uint64_t bytes_of(const Message& message) { return message.headers.lines().size() + message.body.size(); }

} // namespace

std::optional<StoredJob> MemoryJobs::look_up(const RecordId& id) const {
  const auto at = jobs_.find(id);
  return at == jobs_.end() ? std::nullopt : std::optional(at->second.job);
}

void MemoryJobs::write(const StoredJob& job) {
  Kept& kept = jobs_[job.id];
  by_expiry_.erase({kept.job.expires_at, job.id});
  by_expiry_.insert({job.expires_at, job.id});
  if (!job.message_kept) {
    use_.bytes -= bytes_of(kept.message);
    kept.message = Message{};
  }
  kept.job = job;
  index_.note(job);
}

void MemoryJobs::erase(const RecordId& id) {
  const auto at = jobs_.find(id);
  use_.bytes -= bytes_of(at->second.message);
  --use_.records;
  by_expiry_.erase({at->second.job.expires_at, id});
  index_.forget(id);
  jobs_.erase(at);
}

void MemoryJobs::drop_expired(Time now) {
  while (!by_expiry_.empty() && by_expiry_.begin()->first <= now) erase(RecordId(by_expiry_.begin()->second));
}

void MemoryJobs::stage(StageRequest request, Done<StageAnswer> done) {
  Result<StageAnswer> answer = StageAnswer{true, request.fingerprint};
  {
    const std::lock_guard lock(mutex_);
    const Time now = now_();
    drop_expired(now);
    const std::uint64_t bytes = bytes_of(request.message);
    if (const auto known = jobs_.find(request.id); known != jobs_.end()) {
      answer = StageAnswer{false, known->second.job.fingerprint};
    } else if (use_.records >= use_.records_max || !use_.has_room_for(bytes)) {
      answer = unavailable("the memory store is full; wait for jobs to expire, or use a store on disk (rocksdb:PATH)");
    } else {
      ++use_.records;
      use_.bytes += bytes;
      const StoredJob job = *stage_step(std::nullopt, request, now);
      jobs_[request.id].message = std::move(request.message);
      write(job);
    }
  }
  done(std::move(answer));
}

void MemoryJobs::take(const TakeRequest& request, Done<std::vector<TakenJob>> done) {
  std::vector<TakenJob> taken;
  {
    const std::lock_guard lock(mutex_);
    const Time now = now_();
    drop_expired(now);
    for (const RecordId& id : index_.due(request, now)) {
      std::optional<StoredJob> job = take_job_step(look_up(id), request, next_fence_.fetch_add(1), now);
      if (!job) continue;
      write(*job);
      taken.push_back({*std::move(job), jobs_.at(id).message, now});
    }
  }
  done(std::move(taken));
}

void MemoryJobs::end_attempt(const Ownership& owner, AttemptEnd end, Done<FenceAnswer> done) {
  FenceAnswer answer = FenceAnswer::lost;
  {
    const std::lock_guard lock(mutex_);
    if (const auto job = end_attempt_step(look_up(owner.id), owner.fence, std::move(end), now_())) {
      write(*job);
      answer = FenceAnswer::done;
    }
  }
  done(answer);
}

void MemoryJobs::find(const RecordId& id, Done<std::optional<FoundJob>> done) {
  std::optional<FoundJob> found;
  {
    const std::lock_guard lock(mutex_);
    const Time now = now_();
    const auto at = jobs_.find(id);
    if (at != jobs_.end() && !at->second.job.expired(now)) {
      found = FoundJob{at->second.job, std::nullopt, now};
      if (at->second.job.message_kept) found->message = at->second.message;
    }
  }
  done(std::move(found));
}

void MemoryJobs::operate(const RecordId& id, const std::string& /*route*/, JobAction action, Done<JobAnswer> done) {
  JobStep step;
  {
    const std::lock_guard lock(mutex_);
    step = operate_job_step(look_up(id), action, now_());
    if (step.write) write(*step.write);
  }
  done(step.answer);
}

void MemoryJobs::list(const JobListRequest& request, Done<JobPage> done) {
  JobPage page;
  {
    const std::lock_guard lock(mutex_);
    const Time now = now_();
    std::size_t looked = 0;
    for (const auto& [id, kept] : jobs_) {
      page.whole = looked++ < request.look_max;
      if (!page.whole) break;
      if (!is_listed(request, kept.job, now)) continue;
      page.whole = page.jobs.size() < request.limit;
      if (!page.whole) break;
      page.jobs.push_back(kept.job);
    }
  }
  done(std::move(page));
}

void MemoryJobs::count(Done<std::vector<JobCount>> done) {
  {
    const std::lock_guard lock(mutex_);
    drop_expired(now_());
  }
  done(index_.count());
}

} // namespace oncekey
