// Runner: runs operations once per key.
//
//     auto database = oncekey::open_database("sqlite:rides.db");
//     database.value()->migrate();
//     oncekey::Runner runner(*database.value(), {book});
//     const oncekey::OperationRequest request{.operation = "book_ride", .principal = "user:42", .key = key_header, …};
//     const auto outcome = runner.run(request);
//     send(runner.http_answer(request, outcome));
//
// A run claims the key, goes through the operation's steps from its recovery point on, and ends with a stored response.
// Among any number of concurrent runs of one key, in any number of processes, one is the owner; the others are told
// InProgress. The owner holds a lease on the database's clock and a fence, a number that grows with every claim and
// with every phase. Each phase's transaction first locks the operation's row and compares its fence: an owner that was
// taken over changes nothing, and its run is answered from the record like any other.
//
// Which key belongs to which request, when a retry is a different request in disguise, how long an answer is kept and
// how refusals look is decided by a RunnerPolicy, as in the gateway and by the same code.
//
// What a run that does not finish leaves behind:
//
//   a phase or call threw      rolled back, the lease given up at once, the exception passed on to the caller of run();
//                              the next attempt resumes at the last recovery point
//   the process died           the lease stays until it is over; then a retry or the completer resumes
//   the database broke it off  the lease stays as well, but this Runner remembers that it is its own: a retry that
//                              comes to it goes on at once
//
// Durability. When run() says Finished, the answer and all writes of the operation are durable (database.h).
//
// Threads. All members of a Runner may be called from any thread. run() blocks its caller, for as long as phases and
// foreign calls take. One thread in the background renews the leases of runs that are in a foreign call.
#pragma once

#include <oncekey/database.h>
#include <oncekey/key_rules.h>
#include <oncekey/operation.h>
#include <oncekey/record.h>
#include <oncekey/result.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace oncekey {

// The stored response: this run's own, or that of an earlier one.
struct Finished {
  StoredResponse response;
  bool replayed = false; // it was there before this run; the response goes out with the markers of a replay
};
// Another run works on it, or a crash left it with a lease that is not over. The client should retry later, with the
// same key.
struct InProgress {
  // When a retry is likely to be answered: half as long as the operation has run, from 1 to 10 seconds, or the end of
  // the lease if that is sooner.
  std::chrono::seconds retry_after{1};
};
// The key was used for a different request. Nothing was done and nothing changed.
struct Mismatch {};
// No key at all, not a key (too long, characters a key must not have), or no principal to keep it under.
struct KeyInvalid {
  enum class Part { no_key, key, principal };
  Part part = Part::key;
  std::string why; // without a full stop
};
// Serialization failures used up the budget. The operation is at its last recovery point, and its lease is given up:
// the client should retry.
struct Conflict {
  std::chrono::seconds retry_after{1};
};
// Given up after too many attempts, or because a foreign key may be forgotten. Trying again does not help; an operator
// looks at it and restarts it (workers.h).
struct DeadLettered {
  std::string why;
};

// A text of the request (path, principal, method, …) is no UTF-8 or holds a zero byte. Nothing was done.
struct RequestInvalid {
  std::string why; // without a full stop
};
// The runner has no operation of that name, or no step at the recovery point that the operation has reached: it belongs
// to another program, or to another version of this one. Nothing was done and nothing changed.
struct NotDeclared {
  enum class Part { operation, recovery_point };
  Part part = Part::operation;
  std::string why;
};

// How a run ended, where it did not end in a fault. http_answer() makes an answer of every one; a program that speaks
// another protocol looks itself:
//
//     const auto outcome = runner.run(request);
//     if (!outcome) return try_again_later(outcome.fault().message);
//     if (const auto* done = std::get_if<oncekey::Finished>(&*outcome)) return reply(done->response);
//     if (const auto* busy = std::get_if<oncekey::InProgress>(&*outcome)) return retry_after(busy->retry_after);
//     if (std::holds_alternative<oncekey::Mismatch>(*outcome)) return refuse("the key was used for another request");
//     …
//
// Of all of them only Finished has an answer that lasts. After InProgress and Conflict the client sends the same
// request with the same key again. After the others a retry changes nothing.
using RunOutcome =
    std::variant<Finished, InProgress, Mismatch, KeyInvalid, Conflict, DeadLettered, RequestInvalid, NotDeclared>;

// The rules of keys and answers: what of the gateway's policies (docs/POLICIES.md) counts in a library.
struct RunnerPolicy {
  // How the key header is read (key_rules.h).
  KeySyntax key_syntax = KeySyntax::visible_ascii;
  // With KeySyntax::structured_string: refuse keys without quotes.
  bool strict = false;
  // Whether the same key on another path is another operation or a mismatch.
  Identity identity = Identity::operation_key;
  // How bodies are compared. Canonical is for clients that serialize the body again for every attempt.
  FingerprintMode fingerprint = FingerprintMode::bytes;
  // JSON pointers (RFC 6901) to members that may differ between attempts, such as "/sent_at". Needs `canonical`.
  std::vector<std::string> fingerprint_ignore;
  PathCase path_case = PathCase::exact;
  // The statuses of the two refusals about a key, as http_answer() gives them.
  int mismatch_status = 422;
  int in_progress_status = 409;
  // How long an answer is replayed, from the first request on. Longer than any client retries; then the key is new, and
  // a retry executes again. See also RunnerOptions::late_answer_kept.
  Millis retention = std::chrono::hours(24);
  // The form of refusals.
  ErrorFormat errors = ErrorFormat::problem;
  // Set-Cookie fields of an answer are left out of replays unless this is true: a cookie of then may be wrong now.
  bool replay_set_cookie = false;
};
// The named ones: classic (what a default RunnerPolicy is), ietf, stripe-v1, stripe-v2. Nothing for any other name.
std::optional<RunnerPolicy> runner_policy(std::string_view name);

// What a run tells of its steps, for traces and logs. The references are valid during the call of the observer.
//
//     options.on_step = [&](const oncekey::StepEvent& step) {
//       if (step.moment == oncekey::StepEvent::Moment::began) return;
//       tracer.span(step.operation, step.recovery_point, step.label, step.duration);
//     };
struct StepEvent {
  enum class Part { call, phase };
  enum class Moment {
    began,
    ended,  // the call returned, or the phase committed
    threw,  // what the application's code threw is passed on to the caller of run()
    failed, // the phase ended in a fault, lost its lease, or used up its budget of conflicts
  };
  const std::string& operation;
  const RecordId& id;
  const std::string& recovery_point;
  const std::string& label; // of the call; empty for a phase without one
  Part part;
  Moment moment;
  std::chrono::steady_clock::duration duration{}; // since `began`
};
using StepObserver = std::function<void(const StepEvent&)>;

struct RunnerOptions {
  // The rules of keys and answers, a named one (runner_policy) or your own. Read key_rules.h before you change them for
  // keys that are in use.
  RunnerPolicy policy;
  // How long an owner may be silent before another run takes over. Renewed by every phase, and by a thread while a
  // foreign call runs. Shorter means that a retry after a crash waits less; it must be longer than the longest phase.
  Millis lease = std::chrono::seconds(60);
  // The lease of a foreign call that takes longer than this is no longer renewed. When it has run out, a retry makes
  // the call again, with the same key.
  Millis call_max = std::chrono::minutes(5);
  // How long one phase is run again after serialization failures before the outcome is Conflict. Longer means fewer
  // refusals under contention, and threads that are busy for longer.
  Millis conflict_budget = std::chrono::seconds(5);
  // An operation that is finished late, by a completer, keeps its answer for at least this long, also past its
  // retention: its client may still come back for it.
  Millis late_answer_kept = std::chrono::hours(1);
  // Called on the thread of the run, outside transactions, from several threads at once. Must not throw.
  StepObserver on_step;
};

// Counted since the Runner was made, in this process. All of them only grow, so that a monitoring system that reads
// them now and then sees rates. Two that ask for a look: `takeovers` that grow without a crash mean that the lease is
// shorter than the longest phase, and `conflicts` that two operations write the same rows.
struct RunnerMetrics {
  std::uint64_t runs = 0;     // calls of run()
  std::uint64_t finished = 0; // operations that got their answer here, by run() or resume()
  std::uint64_t replayed = 0; // answered from the record of an earlier run
  std::uint64_t in_progress = 0;
  std::uint64_t mismatches = 0;
  std::uint64_t takeovers = 0;       // operations resumed after another owner's lease was over
  std::uint64_t leases_lost = 0;     // phases that found themselves taken over and changed nothing
  std::uint64_t phases_repeated = 0; // after serialization failures
  std::uint64_t conflicts = 0;
  std::uint64_t dead_lettered = 0;
};

// An HTTP answer without framing (Content-Length, Connection) and without Date: the application's server adds those.
struct HttpAnswer {
  int status = 0;
  std::string reason;
  Headers headers;
  std::string body;
};

class Runner {
 public:
  // The operations are copied; their names differ and each has steps, else std::invalid_argument is thrown. The
  // database outlives the runner.
  Runner(Database& database, std::vector<Operation> operations, RunnerOptions options = {});
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Runs the operation once, or answers from its record. Throws only what the operation's own functions throw. Faults:
  //
  //   invalid      a mistake of the application: a recovery point without a step, a transaction ended by hand, a
  //                response that cannot be kept
  //   exhausted    all connections are in use; nothing was done
  //   any other    the database's; how far the operation came is unknown, and the same request with the same key
  //                finds out
  Result<RunOutcome> run(const OperationRequest& request);
  // The same on a connection of the application's own, for all phases of this run; it is held during foreign calls too.
  // Where that is too long, DatabaseOptions::connections lets the library borrow from the application's pool.
  Result<RunOutcome> run(const OperationRequest& request, OwnConnection connection);

  // Goes on with an operation whose lease is over, without its client: what the completer does, and what the handler of
  // a completer's callback calls. The id is the record's. A finished one is answered from its record; an unknown id is
  // NotDeclared.
  Result<RunOutcome> resume(const RecordId& id);

  // What to tell the client: the stored response with the markers of a replay, or a refusal in the policy's format with
  // Retry-After where that helps. A fault of kind `invalid` and an operation that was not declared become a 500; a full
  // pool, an operation that another version must go on with and a database that failed become a 503 that asks for the
  // same request with the same key, each with its own problem type.
  HttpAnswer http_answer(const OperationRequest& request, const Result<RunOutcome>& outcome) const;
  // For a request whose operation threw: a 503 that says it could not be finished yet.
  HttpAnswer http_answer_after_exception(const OperationRequest& request) const;

  // The whole handler of the URL that `oncekey work --resume` or resume_by_http POSTs to: resumes the operation and
  // says how that went. `id` is the request's Idempotency-Key, 64 hex digits. Throws nothing.
  //
  //   200 finished, 202 not yet, 410 a dead letter, 404 not an operation of this runner (no attempt is counted),
  //   400 not an id, 500 it threw or met a fault, with the reason as text
  HttpAnswer resume_answer(std::string_view id);

  // The names of the operations, in the order given.
  std::vector<std::string> operation_names() const;
  RunnerMetrics metrics() const;
  Database& database() const;
  const RunnerOptions& options() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace oncekey
