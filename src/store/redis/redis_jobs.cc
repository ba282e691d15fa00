#include "store/redis/redis_jobs.h"

#include "core/record_codec.h"
#include "store/redis/listing.h"

#include <algorithm>
#include <iterator>
#include <memory>

namespace oncekey::redis {
namespace {

constexpr std::size_t kPartitionsPerTake = 16;

// The answers of several partitions to one take.
struct TakeInParts {
  std::mutex mutex;
  std::size_t open = 0;
  std::vector<TakenJob> taken;
  std::optional<Fault> fault;
  Done<std::vector<TakenJob>> done;

  void add(Result<std::vector<TakenJob>> part) {
    {
      const std::lock_guard lock(mutex);
      if (part) {
        std::move(part->begin(), part->end(), std::back_inserter(taken));
      } else {
        fault = std::move(part).fault();
      }
      if (--open != 0) return;
    }
    // What was taken somewhere is handed out, whatever went wrong elsewhere.
    if (taken.empty() && fault) return done(*std::move(fault));
    done(std::move(taken));
  }
};

std::string_view name_of(AttemptEnd::Kind kind) {
  switch (kind) {
    case AttemptEnd::Kind::delivered:
      return "delivered";
    case AttemptEnd::Kind::again:
      return "again";
    case AttemptEnd::Kind::dead:
      return "dead";
  }
  return "";
}

} // namespace

void RedisJobs::stage(StageRequest request, Done<StageAnswer> done) {
  if (Status may = loop_.state().may_claim(); !may) return done(std::move(may).fault());
  CallPtr call = call_for(request.id, "S", Script::jobs);
  call->job_route = request.route;
  call->add({reinterpret_cast<const char*>(request.fingerprint.bytes.data()), request.fingerprint.bytes.size()});
  call->add(request.route);
  call->add(request.key);
  call->add(request.ordered ? "1" : "0");
  call->add_millis(request.delay);
  call->add_millis(request.retention);
  std::string message;
  encode_message(request.message, message);
  call->add(message);
  const std::uint32_t partition = loop_.names().partition_of(request.id);
  auto staged = [this, route = request.route, partition, done = std::move(done)](Result<StageAnswer> answer) {
    if (answer) has_jobs(route, partition, true);
    done(std::move(answer));
  };
  submit_(std::move(call), StageCall{{}, std::move(staged)});
}

std::map<std::uint32_t, std::size_t> RedisJobs::where_to_take(const TakeRequest& request) {
  const std::uint32_t all = loop_.names().partitions();
  if (all == 1) return {{0, request.limit}};
  std::map<std::uint32_t, std::size_t> limits;
  const std::lock_guard lock(mutex_);
  Whereabouts& known = whereabouts_[request.route];
  const std::size_t some = std::min({known.with_jobs.size(), request.limit, kPartitionsPerTake});
  auto next = known.with_jobs.upper_bound(known.last_asked);
  for (std::size_t asked = 0; asked < some; ++asked) {
    if (next == known.with_jobs.end()) next = known.with_jobs.begin();
    known.last_asked = *next++;
    limits[known.last_asked] = request.limit / some;
  }
  for (std::size_t asked = 0; asked < kPartitionsPerTake; ++asked) limits.try_emplace(known.turn++ % all, 0);
  return limits;
}

void RedisJobs::has_jobs(const std::string& route, std::uint32_t partition, bool any) {
  const std::lock_guard lock(mutex_);
  if (any) {
    whereabouts_[route].with_jobs.insert(partition);
  } else {
    whereabouts_[route].with_jobs.erase(partition);
  }
}

void RedisJobs::take(const TakeRequest& request, Done<std::vector<TakenJob>> done) {
  if (Status may = loop_.state().may_claim(); !may) return done(std::move(may).fault());
  const std::map<std::uint32_t, std::size_t> limits = where_to_take(request);
  auto parts = std::make_shared<TakeInParts>();
  parts->open = limits.size();
  parts->done = std::move(done);
  for (const auto& [partition, limit] : limits) {
    CallPtr call = call_for(loop_.names().first_id_in(partition), "T", Script::jobs);
    call->job_route = request.route;
    call->add(request.route);
    call->add_decimal(limit);
    call->add_millis(request.lease);
    call->add_millis(request.overdue);
    call->jobs_left = [this, route = request.route, partition = partition](bool any) {
      has_jobs(route, partition, any);
    };
    submit_(std::move(call),
            TakeCall{request, [parts](Result<std::vector<TakenJob>> part) { parts->add(std::move(part)); }});
  }
}

void RedisJobs::end_attempt(const Ownership& owner, AttemptEnd end, Done<FenceAnswer> done) {
  const AttemptResult result = end.result.value_or(AttemptResult{});
  CallPtr call = call_for(owner.id, "E", Script::jobs);
  call->job_route = end.route;
  call->add_decimal(owner.fence);
  call->add(name_of(end.kind));
  call->add(end.result ? "1" : "0");
  call->add_decimal(static_cast<std::uint64_t>(result.status));
  call->add(result.reason);
  call->add_millis(end.pause);
  call->add(end.why_dead);
  call->add(end.keep_message ? "1" : "0");
  submit_(std::move(call), AttemptCall{owner, {}, std::move(done)});
}

void RedisJobs::find(const RecordId& id, Done<std::optional<FoundJob>> done) {
  submit_(call_for(id, "F", Script::jobs), FindJobCall{id, std::move(done)});
}

void RedisJobs::operate(const RecordId& id, const std::string& route, JobAction action, Done<JobAnswer> done) {
  CallPtr call = call_for(id, "O", Script::jobs);
  call->job_route = route;
  call->add(to_string(action));
  // A job that is retried may be in a partition in which this gateway knows of none.
  if (action == JobAction::retry) has_jobs(route, loop_.names().partition_of(id), true);
  submit_(std::move(call), JobOperatorCall{id, action, std::move(done)});
}

void RedisJobs::list(const JobListRequest& request, Done<JobPage> done) {
  loop_.loop().post([this, request, done = std::move(done)]() mutable {
    spawn(list_jobs(loop_.servers(), loop_.names(), request, loop_.now(), std::move(done)));
  });
}

void RedisJobs::count(Done<std::vector<JobCount>> done) {
  loop_.loop().post([this, done = std::move(done)]() mutable {
    spawn(count_jobs(loop_.loop(), loop_.servers(), loop_.names(), std::move(done)));
  });
}

} // namespace oncekey::redis
