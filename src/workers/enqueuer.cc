#include "base/backoff.h"
#include "jobs/courier.h"
#include "phases/job_rows.h"
#include "workers/concurrently.h"
#include "workers/worker_loop.h"

#include <unordered_map>
#include <unordered_set>

namespace oncekey {
namespace {

using phases::Command;

// Deliveries end after one half of a claim, so that accepted jobs are deleted while the claim still holds.
constexpr int kClaimUsedShare = 2;

Millis pause_of(const EnqueuerOptions& options, int failures) {
  return pause_after(static_cast<std::uint32_t>(failures), options.backoff_first, options.backoff_max, random_chance());
}

SinkReport deliver(Sink& sink, std::span<const Job> jobs, const DeliveryTurn& turn) {
  SinkReport report;
  auto thrown =
      thrown_by([&] { report = sink.deliver(jobs, turn); }, "the sink threw an exception that is not a std::exception");
  if (thrown) report.down = *std::move(thrown);
  return report;
}

// Jobs that were claimed together. They are given back half-way through the claim, so that what was accepted is deleted
// while it is still ours.
struct ClaimedJobs {
  std::vector<Job> jobs;
  std::int64_t claim = 0;
  std::chrono::steady_clock::time_point until;
};

Result<ClaimedJobs> claim_jobs(Database& database, const std::string& sink, const EnqueuerOptions& options) {
  ClaimedJobs claimed;
  claimed.claim = static_cast<std::int64_t>(random_u64() >> 1);
  claimed.until = std::chrono::steady_clock::now() + options.claim / kClaimUsedShare;
  const Command commands[] = {phases::walk_along_indexes(database.dialect()),
                              {phases::kClaimJobs,
                               {std::string_view(sink), static_cast<std::int64_t>(options.batch),
                                std::int64_t{options.claim.count()}, claimed.claim}}};
  auto rows = transact(database, commands);
  if (!rows.ok()) return std::move(rows).fault();
  claimed.jobs.reserve(rows.value()[1].rows.size());
  for (const SqlRow& row : rows.value()[1].rows) claimed.jobs.push_back(phases::job_of_row(row));
  std::sort(claimed.jobs.begin(), claimed.jobs.end(), [](const Job& a, const Job& b) { return a.id < b.id; });
  return claimed;
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
    std::unordered_map<JobId, const SinkReport::RefusedJob*> refusals;
    for (const SinkReport::RefusedJob& refusal : report.refused) refusals.emplace(refusal.id, &refusal);
    for (const Job& job : jobs) {
      const auto found = refusals.find(job.id);
      if (found == refusals.end() || open.erase(job.id) == 0) continue;
      ++refused;
      reasons_.push_back(error_text(found->second->why));
      const int attempts_max = found->second->for_good ? 1 : options.attempts_max;
      commands.push_back({phases::kRefuseJob,
                          {job.id, claim, std::string_view(reasons_.back()),
                           std::int64_t{pause_of(options, job.attempts + 1).count()}, std::int64_t{attempts_max}}});
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

class EnqueuerLoop final : public CountingLoop<EnqueuerCounts> {
 public:
  EnqueuerLoop(Database& database, std::map<std::string, std::shared_ptr<Sink>> sinks, EnqueuerOptions options)
      : CountingLoop(options.idle_wait), database_(database), options_(options) {
    for (auto& [name, sink] : sinks) lines_.push_back(std::make_unique<Line>(*this, name, std::move(sink)));
  }

  void run() override;
  Result<EnqueuerCounts> run_once() override;

 private:
  struct Line; // a sink, its jobs and their courier
  bool more(const EnqueuerCounts& counts) const override { return counts.delivered != 0; }
  Result<EnqueuerCounts> drain(Line& line);

  Database& database_;
  const EnqueuerOptions options_;
  std::vector<std::unique_ptr<Line>> lines_;
};

// The source is the table, a batch at a time; the carrier is the sink. Both block: courier.look() returns when the
// batch is delivered and written down. No transaction is open during the delivery. A crash before the deletion leaves
// the jobs to the enqueuer that claims them when this claim has ended; the sink gets them again with the same ids.
struct EnqueuerLoop::Line final : JobSource<ClaimedJobs, SinkReport>, Carrier<ClaimedJobs, SinkReport> {
  Line(EnqueuerLoop& owner, std::string of_sink, std::shared_ptr<Sink> to)
      : enqueuer(owner), name(std::move(of_sink)), sink(std::move(to)) {}

  void take(std::size_t /*limit*/, std::function<void(std::vector<ClaimedJobs>)> done) override {
    std::vector<ClaimedJobs> batches;
    auto claimed = claim_jobs(enqueuer.database_, name, enqueuer.options_);
    if (!claimed.ok()) {
      result = std::move(claimed).fault();
    } else if (!claimed->jobs.empty()) {
      counts.claimed += claimed->jobs.size();
      batches.push_back(std::move(claimed).value());
    }
    done(std::move(batches));
  }
  bool still_ours(const ClaimedJobs& batch) const override { return std::chrono::steady_clock::now() < batch.until; }

  void carry(const ClaimedJobs& batch, std::function<void(SinkReport)> done) override {
    SinkReport report = deliver(*sink, batch.jobs, DeliveryTurn(batch.until, [this] { return enqueuer.stopping(); }));
    // A sink that accepted some jobs is probably not down for long: its backoff starts over.
    if (!report.down || !report.accepted.empty()) failures = 0;
    if (report.down) {
      ++counts.sinks_down;
      not_before = std::chrono::steady_clock::now() + pause_of(enqueuer.options_, ++failures);
    }
    enqueuer.report("sink " + name, report.down ? std::optional(error_text(*report.down)) : std::nullopt);
    done(std::move(report));
  }

  void end(ClaimedJobs& batch, SinkReport report, std::function<void()> done) override {
    Database& database = enqueuer.database_;
    const BatchEnd settled(database.dialect(), batch.jobs, report, batch.claim, enqueuer.options_);
    auto rows = transact(database, settled.commands);
    if (rows.ok()) {
      counts.delivered += settled.delivered;
      counts.refused += settled.refused;
      counts.given_back += settled.given_back;
      for (const SqlRows& answer : std::span(rows.value()).subspan(1)) {
        if (!answer.rows.empty() && answer.rows[0].text(0) == "dead") ++counts.dead;
      }
    } else {
      result = std::move(rows).fault();
    }
    done();
  }
  void give_back(ClaimedJobs& batch, std::function<void()> done) override { end(batch, SinkReport{}, std::move(done)); }

  EnqueuerLoop& enqueuer;
  const std::string name;
  const std::shared_ptr<Sink> sink;
  int failures = 0;
  std::chrono::steady_clock::time_point not_before{};
  // Of the batch.
  EnqueuerCounts counts;
  Status result = ok_status();
  Courier<ClaimedJobs, SinkReport> courier{*this, *this, 1, [] {}};
};

// A thread for each sink: one that is slow or down holds up no other.
void EnqueuerLoop::run() {
  if (lines_.empty()) return repeat([] { return false; });
  std::vector<std::jthread> threads;
  std::vector<Line*> without_thread;
  for (const auto& line : lines_) {
    const auto work = [this, &line = *line] { repeat([&] { return more_after(drain(line)); }); };
    if (const auto why = start_threads(threads, 1, work, StartThread{})) {
      report("threads", why);
      without_thread.push_back(line.get());
    }
  }
  if (without_thread.empty()) return;
  // Sinks that got no thread share this one: slower, but their jobs do not wait for a restart.
  repeat([&] {
    bool worked = false;
    for (Line* const line : without_thread) worked = more_after(drain(*line)) || worked;
    return worked;
  });
}

Result<EnqueuerCounts> EnqueuerLoop::run_once() {
  EnqueuerCounts counts;
  std::optional<Fault> failed;
  std::mutex mutex;
  concurrently(lines_.size(), lines_.size(), [&](std::size_t i) {
    auto drained = drain(*lines_[i]);
    const std::lock_guard lock(mutex);
    if (drained.ok()) {
      counts += *drained;
    } else {
      failed = std::move(drained).fault();
    }
    return GoOn::yes;
  });
  if (failed) return std::move(*failed);
  return counts;
}

Result<EnqueuerCounts> EnqueuerLoop::drain(Line& line) {
  if (stopping() || std::chrono::steady_clock::now() < line.not_before) return EnqueuerCounts{};
  line.counts = {};
  line.result = ok_status();
  line.courier.look();
  return ended(line.counts, std::move(line.result));
}

} // namespace

EnqueuerCounts& EnqueuerCounts::operator+=(const EnqueuerCounts& other) {
  using C = EnqueuerCounts;
  return add_counts(*this, other, {&C::claimed, &C::delivered, &C::refused, &C::given_back, &C::dead, &C::sinks_down});
}

Enqueuer::Enqueuer(Database& database, std::map<std::string, std::shared_ptr<Sink>> sinks, EnqueuerOptions options)
    : BackgroundWorker(std::make_unique<EnqueuerLoop>(database, std::move(sinks), options)) {}

Result<EnqueuerCounts> Enqueuer::run_once() { return static_cast<EnqueuerLoop&>(*impl_).run_once(); }
EnqueuerCounts Enqueuer::metrics() const { return static_cast<EnqueuerLoop&>(*impl_).metrics(); }

} // namespace oncekey
