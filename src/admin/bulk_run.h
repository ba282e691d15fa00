// BulkRun: an operator's retry or drop of many jobs at once.
//
// A dry run tells how many jobs fit. The run itself goes through them one after another. Retries are spread over a
// minute, so that a receiver that has just recovered is not met by all of them at once. Each write names the state and
// the fence that the job was listed with: one that a courier or another operator has changed since is left alone. One
// run at a time; its progress can be seen, and it can be stopped.
//
// Belongs to the loop of the operators.
#pragma once

#include "admin/audit_trail.h"
#include "admin/page.h"
#include "core/job_store.h"
#include "gateway/await_store.h"
#include "gateway/shared.h"

#include <boost/json/object.hpp>

#include <list>
#include <map>

namespace oncekey {

class BulkRuns {
 public:
  // At most so many jobs in one run.
  static constexpr std::size_t kJobsMax = 10'000;
  // Named one by one; each is read for it.
  static constexpr std::size_t kIdsMax = 1000;
  static constexpr std::chrono::seconds kSpread{60};
  // Between two of a few jobs: five a second storm no receiver.
  static constexpr std::chrono::milliseconds kPauseMax{200};
  // Ended runs that are remembered.
  static constexpr std::size_t kRunsShown = 20;

  BulkRuns(GatewayShared& shared, Loop& loop, AuditTrail& audit) : shared_(shared), loop_(loop), audit_(audit) {}

  // What is waited between two jobs of a run.
  static std::chrono::milliseconds pause_of(JobAction action, std::size_t jobs);

  // POST /api/jobs/retry and /api/jobs/drop: a dry run, or the beginning of a run.
  Task<PageAnswer> begin(PageRequest& asked);
  PageAnswer list() const;
  PageAnswer show(PageRequest& asked) const;
  PageAnswer stop(PageRequest& asked);
  // The run under way; null if there is none.
  boost::json::value under_way() const;

  // The end of the process: the run under way stops at its next job.
  void stop_all();
  // From any thread.
  bool over() const { return !running_.load(); }

 private:
  struct Run {
    std::string id; // eight hex digits
    JobAction action = JobAction::retry;
    std::string who;
    std::string peer;
    std::string reason;
    Time started{};
    std::optional<Time> ended{};
    std::vector<StoredJob> jobs; // empty once it has ended
    std::size_t total = 0;
    std::size_t done = 0;
    std::size_t failed = 0;
    std::string last_fault;
    std::map<std::string, std::size_t> left_alone; // by why
    bool stop = false;
  };
  struct Selection {
    std::vector<StoredJob> jobs;
    bool capped = false;
    std::map<std::string, std::size_t> skipped; // by why
  };
  Task<Result<Selection>> select(const PageRequest& asked, JobAction action);
  Task<Result<Selection>> select_by_ids(const boost::json::array& ids);
  Task<Result<Selection>> select_by_filter(const boost::json::object& filter);
  Task<void> run(std::shared_ptr<Run> run);
  static std::size_t left_alone(const Run& run);
  Task<void> act(Run& run, const StoredJob& job);
  boost::json::object run_json(const Run& run) const;
  std::shared_ptr<Run> find(std::string_view id) const;

  GatewayShared& shared_;
  Loop& loop_;
  AuditTrail& audit_;
  std::list<std::shared_ptr<Run>> runs_; // newest first
  std::atomic<bool> running_{false};
};

} // namespace oncekey
