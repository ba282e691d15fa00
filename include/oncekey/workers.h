// Workers: what happens behind the requests.
//
//   Completer  finishes operations that were abandoned in the middle.
//   Enqueuer   hands staged jobs to their sinks.
//   Reaper     drops answers and inbox entries whose time is over, whole buckets at once.
//
// Each may run in the application, beside it, and many times over: whatever two of them could both take is claimed in
// the database first. run_once() does what there is to do and returns what it did; run() repeats it until stop(),
// sleeping while there is nothing. A worker's run and run_once are called from one thread; stop() and metrics() from
// any. Inside, work that has nothing to do with each other runs in threads of its own: one per sink, and as many
// resumed operations at a time as the options allow. Faults of the database end a run_once with a fault; run() waits
// and goes on. What is failing at present is told by troubles(), and every change of it by on_trouble().
#pragma once

#include <oncekey/database.h>
#include <oncekey/record.h>
#include <oncekey/result.h>
#include <oncekey/runner.h>
#include <oncekey/sinks.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace oncekey {

// What the three share: the loop of run(), and its end.
class BackgroundWorker {
 public:
  virtual ~BackgroundWorker() = default;
  BackgroundWorker(const BackgroundWorker&) = delete;
  BackgroundWorker& operator=(const BackgroundWorker&) = delete;

  // Until stop(). Returns after the pieces of work under way: a resumed operation, a job. Jobs that were claimed and
  // not begun are given back.
  virtual void run();
  // May come before run(), which then returns at once. Not to be undone.
  void stop();
  bool stopping() const;

  // Called when something begins to fail, with the reason, and when it works again, without one. `what` is "database",
  // "threads" (the machine gave fewer than wanted), "resuming NAME" (the completer's attempts at operations of that
  // name) or "sink NAME". On one of the worker's
  // threads, one call at a time; must not throw. To be set before the first run.
  using TroubleObserver = std::function<void(const std::string& what, const std::optional<std::string>& why)>;
  void on_trouble(TroubleObserver observer) { observer_ = std::move(observer); }
  // What failed when it was last tried, and the reasons.
  std::map<std::string, std::string> troubles() const;

 protected:
  explicit BackgroundWorker(Millis idle_wait) : idle_wait_(idle_wait) {}
  enum class Turn { worked, idle, failed };
  virtual Turn turn() = 0;
  // Takes turns until stop(), with a pause after each that found nothing or failed.
  void repeat(const std::function<Turn()>& turn);
  void failing(const std::string& what, std::string why);
  void working(const std::string& what);

 private:
  const Millis idle_wait_;
  std::mutex observer_mutex_; // before mutex_
  TroubleObserver observer_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::map<std::string, std::string> troubles_;
};

// An operation that is not finished.
struct UnfinishedOperation {
  RecordId id;
  std::string operation;
  std::string recovery_point;
  std::string principal;
  std::string key;
  std::string method;
  std::string path;
  Time first_received{};
  Time reached_at{}; // when it came to its recovery point
  int attempts = 0;  // the completer's
  std::string last_error;
};

struct CompleterOptions {
  // Younger operations are left to their clients, who are probably still trying.
  Millis grace = std::chrono::minutes(5);
  // The wait after a failed attempt doubles from the first to the longest.
  Millis backoff_first = std::chrono::seconds(30);
  Millis backoff_max = std::chrono::hours(1);
  // Then the operation is a dead letter. Twenty attempts take ten to fourteen hours: short of the 24
  // after which foreign keys are forgotten.
  int attempts_max = 20;
  std::size_t batch = 100;     // operations per run_once
  std::size_t concurrency = 8; // operations resumed at a time
  Millis idle_wait = std::chrono::seconds(5);
};

struct CompleterCounts {
  std::uint64_t picked = 0;
  std::uint64_t finished = 0;
  std::uint64_t not_yet = 0; // another run is at work on it, or serialization failures: tried again later
  std::uint64_t failed = 0;  // threw, or met a fault
  std::uint64_t dead = 0;    // became dead letters
  std::uint64_t unknown = 0; // at a recovery point that the resuming program does not have; no attempt was counted
};

class Completer final : public BackgroundWorker {
 public:
  // Resumes with the runner's operations. The runner outlives the completer.
  explicit Completer(Runner& runner, CompleterOptions options = {});
  // Resumes by functions of one's own, by the operation's name: a process without the operations' code asks one that
  // has it (see resume_by_http). What a function throws is a failed attempt; NotDeclared is no attempt. Called from
  // `concurrency` threads at once.
  using Resume = std::function<Result<RunOutcome>(const UnfinishedOperation&)>;
  Completer(Database& database, std::map<std::string, Resume> resume_by_name, CompleterOptions options = {});

  // Operations of other names are left to other completers.
  Result<CompleterCounts> run_once();
  CompleterCounts metrics() const;

 protected:
  Turn turn() override;

 private:
  struct Round;
  void work(Round& round);
  void finish(Round& round, const UnfinishedOperation& operation);
  Status complete(const UnfinishedOperation& operation, CompleterCounts& counts);

  Database& database_;
  std::map<std::string, Resume> resume_by_name_;
  std::string names_; // of the operations, as the statement that picks them wants them
  CompleterOptions options_;
  mutable std::mutex metrics_mutex_;
  CompleterCounts total_;
};

// POSTs {"operation":…,"id":"<64 hex digits>"} to the URL with `Idempotency-Key: <id>`; the application answers with
// runner.resume_answer(id). 2xx means finished, 202 and 409 not yet, 410 a dead letter, 404 that the application does
// not know the operation or its recovery point (no attempt is counted); anything else is a failed attempt.
Result<Completer::Resume> resume_by_http(std::string_view url, HttpSinkOptions options = {});

struct EnqueuerOptions {
  std::size_t batch = 1000; // jobs claimed at a time, per sink
  // How long a claimed batch is this enqueuer's. One that dies leaves its jobs to the others after this.
  Millis claim = std::chrono::seconds(60);
  Millis backoff_first = std::chrono::seconds(1); // for a refused job, doubling; and for a sink that is down
  Millis backoff_max = std::chrono::minutes(10);
  int attempts_max = 25; // refusals after which a job is a dead letter
  Millis idle_wait = std::chrono::milliseconds(500);
};

struct EnqueuerCounts {
  std::uint64_t claimed = 0;
  std::uint64_t delivered = 0;
  std::uint64_t refused = 0;
  std::uint64_t given_back = 0;
  std::uint64_t dead = 0;
  std::uint64_t sinks_down = 0;
};

class Enqueuer final : public BackgroundWorker {
 public:
  // Jobs of sinks that are not in the map are left for other enqueuers.
  Enqueuer(Database& database, std::map<std::string, std::shared_ptr<Sink>> sinks, EnqueuerOptions options = {});
  ~Enqueuer() override;

  void run() override;
  // One batch for every sink that is not being left alone, all sinks at the same time.
  Result<EnqueuerCounts> run_once();
  EnqueuerCounts metrics() const;

 protected:
  Turn turn() override;

 private:
  struct Line; // a sink, its jobs and their courier
  Result<EnqueuerCounts> drain(Line& line);

  Database& database_;
  const EnqueuerOptions options_;
  std::vector<std::unique_ptr<Line>> lines_;
  mutable std::mutex metrics_mutex_;
  EnqueuerCounts total_;
};

struct ReaperOptions {
  // Buckets are kept this much longer than needed, for clocks that differ a little between the servers of a cluster.
  Millis margin = std::chrono::minutes(1);
  Millis idle_wait = std::chrono::minutes(1);
};

struct ReaperCounts {
  std::uint64_t answer_buckets = 0;
  std::uint64_t inbox_buckets = 0;
  std::uint64_t postponed = 0; // in use at the moment; the next run drops them
};

// Unfinished operations and staged jobs are in tables that it does not know.
class Reaper final : public BackgroundWorker {
 public:
  explicit Reaper(Database& database, ReaperOptions options = {});

  Result<ReaperCounts> run_once();
  ReaperCounts metrics() const;

 protected:
  Turn turn() override;

 private:
  Result<ReaperCounts> reap();

  Database& database_;
  ReaperOptions options_;
  mutable std::mutex metrics_mutex_;
  ReaperCounts total_;
};

// For operators.

struct DeadOperation {
  UnfinishedOperation operation;
  Time dead_since{};
  std::string why;
};
Result<std::vector<DeadOperation>> list_dead_operations(Database& database, std::size_t limit = 100);
// Whether the operator has looked on the foreign side (in the payment processor's dashboard, say) and found that the
// call the operation stands before did not happen there.
enum class ForeignSide { not_looked_at, looked_at };
// Lets the completer and the client try again, at once. A call that may have been made so long ago that the foreign API
// has forgotten its key is not made again: the operation is a dead letter once more, and says so. `looked_at` lets it
// be made, with the same key, and counts the foreign memory from now. False if there is no such dead letter.
Result<bool> restart_dead_operation(Database& database, const RecordId& id,
                                    ForeignSide foreign_side = ForeignSide::not_looked_at);

// What an operator sees of a job. Delivered and dropped jobs are gone: their rows are deleted.
enum class TableJobState {
  waiting, // for its time, or for an enqueuer
  taken,   // an enqueuer delivers it now
  dead,    // a dead letter: its sink refused it too often
};
std::string_view to_string(TableJobState state);
struct TableJob {
  Job job;
  TableJobState state = TableJobState::waiting;
  Time next_attempt{};
  Time dead_since{}; // of a dead letter
  std::string last_error;
};
struct TableJobQuery {
  std::optional<JobId> id{};            // this one alone
  std::optional<TableJobState> state{}; // in this state alone
  std::string sink{};                   // of this sink alone; empty for all
  std::size_t limit = 100;
};
// By id.
Result<std::vector<TableJob>> list_jobs(Database& database, const TableJobQuery& query = {});
// Has it delivered at once; a dead letter gets all its attempts again. False if there is no such job, or an enqueuer
// has it at the moment.
Result<bool> retry_job(Database& database, JobId id);
// Deletes it. False as above.
Result<bool> drop_job(Database& database, JobId id);

struct SinkBacklog {
  std::uint64_t staged = 0;
  Millis oldest_age{};
};
struct Backlog {
  std::uint64_t unfinished_operations = 0;
  std::uint64_t dead_operations = 0;
  std::uint64_t staged_jobs = 0;
  std::uint64_t dead_jobs = 0;
  std::optional<Millis> oldest_job_age;
  // By the name of the sink: a name that no enqueuer has, a misspelled one, is seen here.
  std::map<std::string, SinkBacklog> by_sink;
};
Result<Backlog> count_backlog(Database& database);

} // namespace oncekey
