#include "store/redis/redis_jobs.h"

#include "base/enum_name.h"
#include "core/attempt_lines.h"
#include "core/record_codec.h"
#include "store/redis/listing.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <set>

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

class RedisJobs final : public JobStore {
 public:
  RedisJobs(Servers& servers, Submit submit) : servers_(servers), state_(servers.store()), submit_(std::move(submit)) {}

  void stage(StageRequest request, Done<StageAnswer> done) override {
    if (Status may = state_.may_claim(); !may) return done(std::move(may).fault());
    const std::string fingerprint(request.fingerprint.bytes.begin(), request.fingerprint.bytes.end());
    std::string message;
    encode_message(request.message, message);
    CallPtr call = call_for(Script::jobs, request.id, "S", fingerprint, request.route, request.key, request.ordered,
                            request.delay, request.retention, message);
    call->job_route = request.route;
    const std::uint32_t partition = state_.names.partition_of(request.id);
    auto staged = [this, route = request.route, partition, done = std::move(done)](Result<StageAnswer> answer) {
      if (answer) has_jobs(route, partition, true);
      done(std::move(answer));
    };
    submit_(std::move(call), StageCall{{}, std::move(staged)});
  }

  void take(const TakeRequest& request, Done<std::vector<TakenJob>> done) override {
    if (Status may = state_.may_claim(); !may) return done(std::move(may).fault());
    const std::map<std::uint32_t, std::size_t> limits = where_to_take(request);
    auto parts = std::make_shared<TakeInParts>();
    parts->open = limits.size();
    parts->done = std::move(done);
    for (const auto& [partition, limit] : limits) {
      CallPtr call = call_for(Script::jobs, state_.names.first_id_in(partition), "T", request.route, limit,
                              request.lease, request.overdue);
      call->job_route = request.route;
      call->jobs_left = [this, route = request.route, in = partition](bool any) { has_jobs(route, in, any); };
      submit_(std::move(call),
              TakeCall{request, [parts](Result<std::vector<TakenJob>> part) { parts->add(std::move(part)); }});
    }
  }

  void end_attempt(const Ownership& owner, AttemptEnd end, Done<FenceAnswer> done) override {
    static_assert(kAttemptsKept == 10, "as the script has it");
    const std::string attempt = end.result ? attempt_line(end.gateway, *end.result) : std::string();
    CallPtr call = call_for(Script::jobs, owner.id, "E", owner.fence, enum_name(end.kind), attempt, end.pause,
                            end.why_dead, end.keep_message);
    call->job_route = end.route;
    submit_(std::move(call), AttemptCall{owner, {}, std::move(done)});
  }

  void find(const RecordId& id, Done<std::optional<FoundJob>> done) override {
    submit_(call_for(Script::jobs, id, "F"), FindJobCall{id, std::move(done)});
  }

  void operate(const RecordId& id, const std::string& route, JobAction action, std::optional<JobSeen> seen,
               Done<JobAnswer> done) override {
    const std::string state = seen ? std::to_string(static_cast<int>(seen->state)) : "";
    const std::string fence = seen ? std::to_string(seen->fence) : "";
    CallPtr call = call_for(Script::jobs, id, "O", to_string(action), state, fence);
    call->job_route = route;
    // A job that is retried may be in a partition in which this gateway knows of none.
    if (action == JobAction::retry) has_jobs(route, state_.names.partition_of(id), true);
    submit_(std::move(call), JobOperatorCall{id, action, seen, std::move(done)});
  }

  void list(const JobListRequest& request, Done<JobPage> done) override {
    run_on(
        state_.loop, [this, request] { return list_jobs(servers_, request); }, std::move(done));
  }

  void count(Done<std::vector<JobCount>> done) override {
    run_on(
        state_.loop, [this] { return count_jobs(servers_); }, std::move(done));
  }

 private:
  // Where a route has jobs, as far as is known here.
  struct Whereabouts {
    std::set<std::uint32_t> with_jobs;
    std::uint32_t last_asked = 0; // of those
    std::uint32_t turn = 0;       // of all
  };

  // Which partitions to take from, and how many from each. Some of all are only asked whether they have any, in turn:
  // another gateway may have staged jobs anywhere.
  std::map<std::uint32_t, std::size_t> where_to_take(const TakeRequest& request) {
    const std::uint32_t all = state_.names.partitions();
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

  void has_jobs(const std::string& route, std::uint32_t partition, bool any) {
    const std::lock_guard lock(mutex_);
    if (any) {
      whereabouts_[route].with_jobs.insert(partition);
    } else {
      whereabouts_[route].with_jobs.erase(partition);
    }
  }

  Servers& servers_;
  StoreState& state_;
  const Submit submit_;
  std::mutex mutex_;
  std::map<std::string, Whereabouts> whereabouts_; // by route
};

} // namespace

std::unique_ptr<JobStore> redis_jobs(Servers& servers, Submit submit) {
  return std::make_unique<RedisJobs>(servers, std::move(submit));
}

} // namespace oncekey::redis
