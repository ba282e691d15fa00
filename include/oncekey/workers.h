// Workers: what happens behind the requests.
//
//   Completer  finishes operations that were abandoned in the middle.
//   Enqueuer   hands staged jobs to their sinks.
//   Reaper     drops answers and inbox entries whose time is over, whole buckets at once.
//
// Where they run. In the application, in a process beside it (`oncekey work`), or in both, as many as you like:
// whatever two of them could both take is claimed in the database first.
//
//     oncekey::Enqueuer enqueuer(*database, {{"mail", oncekey::http_sink("http://127.0.0.1:9000/mail").value()}});
//     std::thread thread([&] { enqueuer.run(); });
//     …
//     enqueuer.stop();
//     thread.join();
//
// run_once() does what there is to do and returns what it did; run() repeats it until stop() and sleeps while there is
// nothing to do. Tests and cron jobs use run_once(), servers run().
//
// Threads. run() and run_once() of one worker are called from one thread at a time; everything else from any thread.
// A worker uses threads of its own for work that is independent: one for each sink, and one for each of the operations
// that are resumed at the same time. They have ended when run() or run_once() returns.
//
// Faults. A database that fails ends a run_once() with a fault; run() waits for `idle_wait` and goes on. A sink or an
// application that fails is not a fault: the attempt is counted and made again later, with growing pauses. What is
// failing at present is told by troubles(), and every change of it by on_trouble().
//
// Crashes. A worker that dies leaves claims and leases behind. Other workers, or its successor, take the work over when
// these are over, so that an operation is resumed and a job is handed over at least once. What makes that safe: phases
// check their fence, foreign calls get the same key, jobs have the same id.
//
// Time is that of the database (database.h), on all machines. The database outlives every worker made from it.
#pragma once

#include <oncekey/database.h>
#include <oncekey/record.h>
#include <oncekey/result.h>
#include <oncekey/runner.h>
#include <oncekey/sinks.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

// What the three workers share.
class BackgroundWorker {
 public:
  BackgroundWorker(const BackgroundWorker&) = delete;
  BackgroundWorker& operator=(const BackgroundWorker&) = delete;

  // Works until stop(). Then it returns after the work under way: the operations being resumed, the job being handed
  // over. Jobs that were claimed and not begun are given back. Must have returned before the worker is destroyed.
  void run();
  // Ends run(), also one that begins later, and lets a run_once() under way begin nothing more. Cannot be undone.
  void stop();
  bool stopping() const;

  // Called when something begins to fail, with the reason, and when it works again, without one. `what` is one of
  //   "database"        statements fail, or connections cannot be made
  //   "threads"         the machine gave fewer threads than wanted; the work is done by the others
  //   "resuming NAME"   the completer's attempts at operations of that name fail
  //   "sink NAME"       the sink is down
  // Called on a thread of the worker, one call at a time. Must not throw. Set it before the first run.
  using TroubleObserver = std::function<void(const std::string& what, const std::optional<std::string>& why)>;
  void on_trouble(TroubleObserver observer);
  // What failed when it was last tried, as `what` above, and the latest reasons.
  std::map<std::string, std::string> troubles() const;

  struct Impl; // the inside: src/workers/worker_loop.h

 protected:
  explicit BackgroundWorker(std::unique_ptr<Impl> impl);
  ~BackgroundWorker();
  std::unique_ptr<Impl> impl_;
};

// An operation that is not finished, as a completer and an operator see it.
struct UnfinishedOperation {
  RecordId id;           // of its record: what Runner::resume takes
  std::string operation; // the name of the Operation
  std::string recovery_point;
  std::string principal; // this and the next three are those of the request
  std::string key;
  std::string method;
  std::string path;
  Time first_received{};
  Time reached_at{};      // when it came to its recovery point
  int attempts = 0;       // the completer's, the present one included
  std::string last_error; // of the completer's last failed attempt; empty if there was none
};

struct CompleterOptions {
  // Younger operations are left to their clients, which are probably still retrying.
  Millis grace = std::chrono::minutes(5);
  // The pause after the first attempt is one to two of `backoff_first`; it doubles up to `backoff_max`, of which half
  // to all is taken.
  Millis backoff_first = std::chrono::seconds(30);
  Millis backoff_max = std::chrono::hours(1);
  // Then the operation is a dead letter. Twenty attempts take ten to eleven hours: short of the 24
  // after which foreign keys are forgotten.
  int attempts_max = 20;
  // Operations for one run_once().
  std::size_t batch = 100;
  // Operations resumed at the same time, each on a thread of its own. Foreign calls are mostly waiting, so that eight
  // slow ones do not hold up the rest.
  std::size_t concurrency = 8;
  // How long run() sleeps when there is nothing to do.
  Millis idle_wait = std::chrono::seconds(5);
};

// Of one run_once(), or of all since the start (metrics()).
struct CompleterCounts {
  std::uint64_t picked = 0;   // operations that were taken up
  std::uint64_t finished = 0; // they have their answer now
  std::uint64_t not_yet = 0;  // another run is at work on it, or serialization failures: tried again later
  std::uint64_t failed = 0;   // threw, or met a fault
  std::uint64_t dead = 0;     // became dead letters
  std::uint64_t unknown = 0;  // at a recovery point that the resuming program does not have; no attempt was counted
  CompleterCounts& operator+=(const CompleterCounts& other);
};

// Resumes operations whose lease is over and whose grace is past, oldest first.
//
//     oncekey::Completer completer(runner);                              // in the application itself
//
//     auto resume = oncekey::resume_by_http("http://127.0.0.1:8080/resume");  // in a process beside it
//     oncekey::Completer beside(*database, {{"book_ride", resume.value()}});
//
// An attempt is counted in the database before it is made. An operation that kills its process every time therefore
// becomes a dead letter too, instead of killing one process after another for ever.
class Completer final : public BackgroundWorker {
 public:
  // Resumes with the runner's operations. The runner outlives the completer.
  explicit Completer(Runner& runner, CompleterOptions options = {});

  // Resumes by the functions given, by the operation's name. For a process without the operations' code, which asks one
  // that has it (resume_by_http). What a function throws is a failed attempt, as is a fault; NotDeclared is no attempt.
  // The functions are called from `concurrency` threads at once.
  using Resume = std::function<Result<RunOutcome>(const UnfinishedOperation&)>;
  Completer(Database& database, std::map<std::string, Resume> resume_by_name, CompleterOptions options = {});

  // Takes up to `batch` operations, each once. Operations of other names are left to other completers. A fault is the
  // database's; what was finished before it stays finished.
  Result<CompleterCounts> run_once();
  CompleterCounts metrics() const;
};

// A Resume that asks the application over HTTP, as `oncekey work --resume` does. POSTs
// {"operation":…,"id":"<64 hex digits>"} to the URL with `Idempotency-Key: <id>`; the application answers with
// Runner::resume_answer(id). What its status means:
//
//   2xx except 202    finished
//   202, 409          not yet: another run is at work on it
//   404               the application does not know the operation or its recovery point; no attempt is counted
//   410               a dead letter
//   anything else     a failed attempt
//
// A URL that cannot be used is a fault of kind `invalid`.
Result<Completer::Resume> resume_by_http(std::string_view url, HttpSinkOptions options = {});

struct EnqueuerOptions {
  // Jobs claimed at a time, for each sink. A sink that is slow with each job wants less, so that other enqueuers get
  // some of them.
  std::size_t batch = 1000;
  // How long a claimed batch belongs to this enqueuer. An enqueuer that dies leaves its jobs to the others after this.
  // Half of it is used for delivering: what was accepted is deleted well before the claim ends.
  Millis claim = std::chrono::seconds(60);
  // The wait after a refused job, and after a sink was down: doubling from the first to the longest, of which half to
  // all is taken at random.
  Millis backoff_first = std::chrono::seconds(1);
  Millis backoff_max = std::chrono::minutes(10);
  // Refusals after which a job is a dead letter. A sink that is down refuses nothing: its jobs wait.
  int attempts_max = 25;
  // How long a sink's thread in run() sleeps after a batch in which nothing was delivered.
  Millis idle_wait = std::chrono::milliseconds(500);
};

// Of one run_once(), or of all since the start (metrics()). Jobs, but for the last.
struct EnqueuerCounts {
  std::uint64_t claimed = 0;
  std::uint64_t delivered = 0;  // accepted by the sink, and deleted
  std::uint64_t refused = 0;    // to be tried again, or dead
  std::uint64_t given_back = 0; // neither accepted nor refused: to be claimed again
  std::uint64_t dead = 0;       // of the refused, those that became dead letters
  std::uint64_t sinks_down = 0; // batches that ended because the sink was down
  EnqueuerCounts& operator+=(const EnqueuerCounts& other);
};

// Hands due jobs to their sinks, in order of id for each sink, and deletes what a sink accepted. No transaction is open
// during a delivery. A crash between accepting and deleting means that the sink gets the same jobs again.
class Enqueuer final : public BackgroundWorker {
 public:
  // Jobs of sinks that are not in the map are left to other enqueuers.
  Enqueuer(Database& database, std::map<std::string, std::shared_ptr<Sink>> sinks, EnqueuerOptions options = {});

  // One batch for every sink that is not pausing after being down, all sinks at the same time. A fault is the
  // database's; jobs that were accepted and could not be deleted are delivered again.
  Result<EnqueuerCounts> run_once();
  EnqueuerCounts metrics() const;
};

struct ReaperOptions {
  // Buckets are kept this much longer than needed, for clocks that differ a little between the servers of a cluster.
  Millis margin = std::chrono::minutes(1);
  Millis idle_wait = std::chrono::minutes(1);
};

// Buckets, of one run_once() or of all since the start (metrics()).
struct ReaperCounts {
  std::uint64_t answer_buckets = 0;
  std::uint64_t inbox_buckets = 0;
  std::uint64_t postponed = 0; // in use at the moment; the next run drops them
  ReaperCounts& operator+=(const ReaperCounts& other);
};

// Drops expired answers and inbox entries, a whole table at a time: that costs the same however many rows it holds. It
// frees space and decides nothing: an expired answer is never replayed, whether it was dropped or not. Unfinished
// operations and staged jobs are in other tables, which it does not touch.
class Reaper final : public BackgroundWorker {
 public:
  explicit Reaper(Database& database, ReaperOptions options = {});

  Result<ReaperCounts> run_once();
  ReaperCounts metrics() const;
};

// For operators: what `oncekey work --dead` and `--restart-operation` call. All may be called from any
// thread; a fault is the database's.
//
//     for (const auto& dead : oncekey::list_dead_operations(*database).value()) {
//       std::cout << oncekey::to_hex(dead.operation.id) << " " << dead.why << "\n";
//     }
//     // The payment processor's dashboard shows no such charge: the call may be made.
//     oncekey::restart_dead_operation(*database, id, oncekey::ForeignSide::looked_at);

// An operation that was given up after too many attempts, or because the foreign API may have forgotten the key of the
// call it stands before. Its client is told so (DeadLettered), and no worker touches it.
struct DeadOperation {
  UnfinishedOperation operation;
  Time dead_since{};
  std::string why;
};
// Oldest first, at most `limit`.
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
// What waits, counted now: for a dashboard or an alarm. An oldest job whose age grows means that a sink is down, or
// that no enqueuer has it.
//
//     const auto backlog = oncekey::count_backlog(*database);
//     if (backlog && backlog->oldest_job_age > std::chrono::minutes(10)) alarm("jobs are not delivered");
//     if (backlog && backlog->dead_operations > 0) alarm("operations wait for a person");
struct Backlog {
  std::uint64_t unfinished_operations = 0; // running ones included
  std::uint64_t dead_operations = 0;
  std::uint64_t staged_jobs = 0; // not yet delivered, those under way and those staged for later included
  std::uint64_t dead_jobs = 0;
  std::optional<Millis> oldest_job_age; // of the staged ones; nothing if there are none
  // By the name of the sink: a misspelled one, which no enqueuer has, is seen here.
  std::map<std::string, SinkBacklog> by_sink;
};
Result<Backlog> count_backlog(Database& database);

} // namespace oncekey
