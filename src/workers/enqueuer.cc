#include <oncekey/workers.h>

#include "base/crypto.h"
#include "phases/engine.h"
#include "phases/job_rows.h"
#include "workers/concurrently.h"
#include "workers/error_text.h"
#include "workers/worker_loop.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <thread>
#include <unordered_map>
#include <unordered_set>

namespace oncekey {
namespace {

using phases::Command;
using phases::Isolation;

// Deliveries end after one half of a claim, so that accepted jobs are deleted while the claim still holds.
constexpr int kClaimUsedShare = 2;

void add(EnqueuerCounts& to, const EnqueuerCounts& counts) {
  to.claimed += counts.claimed;
  to.delivered += counts.delivered;
  to.refused += counts.refused;
  to.given_back += counts.given_back;
  to.dead += counts.dead;
  to.sinks_down += counts.sinks_down;
}

// Doubles with every failure; drawn from the upper half.
Millis backoff(int failures, const EnqueuerOptions& options) {
  const std::int64_t doubled = options.backoff_first.count() << std::min(std::max(failures, 0), 20);
  const std::int64_t wait = std::min(doubled, std::int64_t{options.backoff_max.count()});
  return Millis{wait / 2 + static_cast<std::int64_t>(random_u64() % static_cast<std::uint64_t>(wait / 2 + 1))};
}

SinkReport deliver(Sink& sink, std::span<const Job> jobs, const DeliveryTurn& turn) {
  try {
    return sink.deliver(jobs, turn);
  } catch (const std::exception& error) {
    return {.accepted = {}, .refused = {}, .down = error.what()};
  } catch (...) {
    return {.accepted = {}, .refused = {}, .down = "the sink threw an exception that is not a std::exception"};
  }
}

Result<std::vector<Job>> claim_jobs(Database& database, const std::string& sink, const EnqueuerOptions& options,
                                    std::int64_t claim) {
  auto session = database.engine().session();
  if (!session.ok()) return std::move(session).fault();
  const Command commands[] = {
      phases::walk_along_indexes(database.dialect()),
      {phases::kClaimJobs,
       {std::string_view(sink), static_cast<std::int64_t>(options.batch), std::int64_t{options.claim.count()}, claim}}};
  auto rows = (*session)->transact(Isolation::read_committed, commands);
  if (!rows.ok()) return std::move(rows).fault();
  std::vector<Job> jobs;
  jobs.reserve(rows.value()[1].rows.size());
  for (const SqlRow& row : rows.value()[1].rows) jobs.push_back(phases::job_of_row(row));
  std::sort(jobs.begin(), jobs.end(), [](const Job& a, const Job& b) { return a.id < b.id; });
  return jobs;
}

// The statements that record what became of a batch, and the texts that they refer to.
class BatchEnd {
 public:
  BatchEnd(Dialect dialect, std::span<const Job> jobs, const SinkReport& report, std::int64_t claim,
           const EnqueuerOptions& options) {
    commands.push_back(phases::walk_along_indexes(dialect));
    std::unordered_set<JobId> open;
    for (const Job& job : jobs) open.insert(job.id);
    std::vector<JobId> accepted;
    // An id that was not in the batch is a mistake of the sink; only what was handed over is deleted.
    for (const JobId id : report.accepted) {
      if (open.erase(id) != 0) accepted.push_back(id);
    }
    delivered = accepted.size();
    if (delivered != 0) {
      accepted_ = phases::id_list(dialect, accepted);
      commands.push_back({phases::kDeleteJobs, {std::string_view(accepted_)}});
    }
    std::unordered_map<JobId, std::string_view> reasons;
    for (const SinkReport::RefusedJob& refusal : report.refused) reasons.emplace(refusal.id, refusal.why);
    for (const Job& job : jobs) {
      const auto why = reasons.find(job.id);
      if (why == reasons.end() || open.erase(job.id) == 0) continue;
      ++refused;
      reasons_.push_back(error_text(why->second));
      commands.push_back({phases::kRefuseJob,
                          {job.id, claim, std::string_view(reasons_.back()),
                           std::int64_t{backoff(job.attempts, options).count()}, std::int64_t{options.attempts_max}}});
    }
    given_back = open.size();
    if (given_back != 0) {
      const std::vector<JobId> rest(open.begin(), open.end());
      rest_ = phases::id_list(dialect, rest);
      commands.push_back({phases::kGiveJobsBack, {std::string_view(rest_), claim}});
    }
  }
  BatchEnd(const BatchEnd&) = delete;
  BatchEnd& operator=(const BatchEnd&) = delete;

  std::vector<Command> commands;
  std::size_t delivered = 0, refused = 0, given_back = 0;

 private:
  std::string accepted_;
  std::string rest_;
  std::deque<std::string> reasons_;
};

class EnqueuerLoop final : public BackgroundWorker::Impl {
 public:
  EnqueuerLoop(Database& database, std::map<std::string, std::shared_ptr<Sink>> sinks, EnqueuerOptions options)
      : Impl(options.idle_wait), database_(database), options_(options) {
    for (auto& [name, sink] : sinks) sinks_[name].sink = std::move(sink);
  }

  void run() override;
  Result<EnqueuerCounts> run_once();
  EnqueuerCounts metrics() const {
    const std::lock_guard lock(metrics_mutex_);
    return total_;
  }

 private:
  struct SinkState {
    std::shared_ptr<Sink> sink;
    int failures = 0;
    std::chrono::steady_clock::time_point not_before{};
  };
  Turn turn() override;
  Result<EnqueuerCounts> drain(const std::string& name, SinkState& state);
  Status drain(const std::string& name, SinkState& state, EnqueuerCounts& counts);

  Database& database_;
  std::map<std::string, SinkState> sinks_;
  const EnqueuerOptions options_;
  mutable std::mutex metrics_mutex_;
  EnqueuerCounts total_;
};

// A thread for each sink: one that is slow or down holds up no other.
void EnqueuerLoop::run() {
  if (sinks_.empty()) return repeat([] { return Turn::idle; });
  const auto turn_of = [this](const std::string& name, SinkState& state) {
    const auto counts = drain(name, state);
    if (!counts.ok()) return Turn::failed;
    return counts->delivered != 0 ? Turn::worked : Turn::idle;
  };
  std::vector<std::jthread> threads;
  std::vector<std::pair<const std::string*, SinkState*>> without_thread;
  for (auto& [name, state] : sinks_) {
    const auto work = [&turn_of, this, &name = name, &state = state] { repeat([&] { return turn_of(name, state); }); };
    if (const auto why = start_threads(threads, 1, work, StartThread{})) {
      failing("threads", *why);
      without_thread.emplace_back(&name, &state);
    }
  }
  if (without_thread.empty()) return;
  // Sinks that got no thread share this one: slower, but their jobs do not wait for a restart.
  repeat([&] {
    bool worked = false;
    for (const auto& [name, state] : without_thread) worked = turn_of(*name, *state) == Turn::worked || worked;
    return worked ? Turn::worked : Turn::idle;
  });
}

Result<EnqueuerCounts> EnqueuerLoop::run_once() {
  std::vector<std::pair<const std::string*, SinkState*>> sinks;
  for (auto& [name, state] : sinks_) sinks.emplace_back(&name, &state);
  EnqueuerCounts counts;
  std::optional<Fault> failed;
  std::mutex mutex;
  concurrently(sinks.size(), sinks.size(), [&](std::size_t i) {
    auto drained = drain(*sinks[i].first, *sinks[i].second);
    const std::lock_guard lock(mutex);
    if (drained.ok()) {
      add(counts, *drained);
    } else {
      failed = std::move(drained).fault();
    }
    return GoOn::yes;
  });
  if (failed) return std::move(*failed);
  return counts;
}

Result<EnqueuerCounts> EnqueuerLoop::drain(const std::string& name, SinkState& state) {
  EnqueuerCounts counts;
  if (stopping() || std::chrono::steady_clock::now() < state.not_before) return counts;
  auto drained = drain(name, state, counts);
  {
    const std::lock_guard lock(metrics_mutex_);
    add(total_, counts);
  }
  if (!drained.ok()) {
    failing("database", drained.fault().message);
    return std::move(drained).fault();
  }
  working("database");
  return counts;
}

// Claim, deliver, delete: no transaction is open during the delivery. A crash before the deletion leaves the jobs to
// the enqueuer that claims them when this claim has ended; the sink gets them again with the same ids.
Status EnqueuerLoop::drain(const std::string& name, SinkState& state, EnqueuerCounts& counts) {
  const auto claim = static_cast<std::int64_t>(random_u64() >> 1);
  const auto until = std::chrono::steady_clock::now() + options_.claim / kClaimUsedShare;
  auto jobs = claim_jobs(database_, name, options_, claim);
  if (!jobs.ok()) return std::move(jobs).fault();
  if (jobs->empty()) return ok_status();
  counts.claimed += jobs->size();

  const SinkReport report = deliver(*state.sink, *jobs, DeliveryTurn(until, [this] { return stopping(); }));
  // A sink that accepted some jobs is probably not down for long: its backoff starts over.
  if (!report.down || !report.accepted.empty()) state.failures = 0;
  if (report.down) {
    ++counts.sinks_down;
    state.not_before = std::chrono::steady_clock::now() + backoff(state.failures++, options_);
    failing("sink " + name, error_text(*report.down));
  } else {
    working("sink " + name);
  }
  const BatchEnd settled(database_.dialect(), *jobs, report, claim, options_);
  auto session = database_.engine().session();
  if (!session.ok()) return std::move(session).fault();
  auto rows = (*session)->transact(Isolation::read_committed, settled.commands);
  if (!rows.ok()) return std::move(rows).fault();
  counts.delivered += settled.delivered;
  counts.refused += settled.refused;
  counts.given_back += settled.given_back;
  for (const SqlRows& answer : std::span(rows.value()).subspan(1)) {
    if (!answer.rows.empty() && answer.rows[0].text(0) == "dead") ++counts.dead;
  }
  return ok_status();
}

EnqueuerLoop::Turn EnqueuerLoop::turn() {
  const auto counts = run_once();
  if (!counts.ok()) return Turn::failed;
  return counts->delivered != 0 ? Turn::worked : Turn::idle;
}

} // namespace

Enqueuer::Enqueuer(Database& database, std::map<std::string, std::shared_ptr<Sink>> sinks, EnqueuerOptions options)
    : BackgroundWorker(std::make_unique<EnqueuerLoop>(database, std::move(sinks), options)) {}

Result<EnqueuerCounts> Enqueuer::run_once() { return static_cast<EnqueuerLoop&>(*impl_).run_once(); }
EnqueuerCounts Enqueuer::metrics() const { return static_cast<EnqueuerLoop&>(*impl_).metrics(); }

} // namespace oncekey
