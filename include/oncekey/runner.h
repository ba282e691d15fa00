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
// with every phase. Each phase's transaction first locks the operation's row and looks whether its fence is still ours:
// an owner that was taken over changes nothing, and its run is answered from the record like anybody's.
//
// Which key belongs to which request, when a retry is a different request in disguise, how long an answer is kept and
// how refusals look is decided by a Policy, as in the gateway and by the same code.
//
// Exceptions from phases and calls roll back, give the lease up at once and are passed on to the caller of run(); the
// next attempt resumes at the last recovery point. A process that dies keeps the lease until it is over.
#pragma once

#include <oncekey/database.h>
#include <oncekey/operation.h>
#include <oncekey/policy.h>
#include <oncekey/record.h>
#include <oncekey/result.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace oncekey {

// The stored response: this run's own, or that of an earlier one.
struct Finished {
  StoredResponse response;
  bool replayed = false;
};
// Somebody else works on it, or a crash left it with a lease that is not over.
struct InProgress {
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
// Serialization failures used up the budget. The operation is at its last recovery point and free: try again.
struct Conflict {
  std::chrono::seconds retry_after{1};
};
// Given up after too many attempts, or because a foreign key may be forgotten. Trying again does not help; an operator
// looks at it and restarts it (workers.h).
struct DeadLettered {
  std::string why;
};

using RunOutcome = std::variant<Finished, InProgress, Mismatch, KeyInvalid, Conflict, DeadLettered>;

struct RunnerOptions {
  // Keys, identity, fingerprints, retention, and the look of answers. Fields about upstreams have no meaning here.
  Policy policy = *policy_by_name("classic");
  // How long an owner may be silent. Renewed by every phase, and by a thread while a foreign call runs.
  Millis lease = std::chrono::seconds(60);
  // A foreign call that takes longer than this is no longer waited for by others: its lease is left to run out.
  Millis call_max = std::chrono::minutes(5);
  // How long one phase is run again after serialization failures before the answer is Conflict.
  Millis conflict_budget = std::chrono::seconds(5);
  // An operation finished late, by a completer, is answered at least this much longer, whatever its retention says.
  Millis late_answer_kept = std::chrono::hours(1);
};

struct RunnerMetrics {
  std::uint64_t runs = 0;
  std::uint64_t finished = 0;
  std::uint64_t replayed = 0;
  std::uint64_t in_progress = 0;
  std::uint64_t mismatches = 0;
  std::uint64_t takeovers = 0;       // operations resumed after somebody else's lease
  std::uint64_t leases_lost = 0;     // phases that found themselves taken over and changed nothing
  std::uint64_t phases_repeated = 0; // after serialization failures
  std::uint64_t conflicts = 0;
  std::uint64_t dead_lettered = 0;
};

// An HTTP answer without framing (Content-Length, Connection) and Date, which are the server's business.
struct HttpAnswer {
  int status = 0;
  std::string reason;
  Headers headers;
  std::string body;
};

class Runner {
 public:
  // The operations are copied; their names must differ. The database outlives the runner.
  Runner(Database& database, std::vector<Operation> operations, RunnerOptions options = {});
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // From any thread. Throws only what the operation's own functions throw. A fault of kind `invalid` is a mistake of
  // the application (no such operation or recovery point, a transaction ended by hand); other faults are the
  // database's, and after them it is not known how far the operation came: the same request with the same key finds
  // out.
  Result<RunOutcome> run(const OperationRequest& request);
  // The same on a connection of the application's own, for all phases of this run.
  Result<RunOutcome> run(const OperationRequest& request, OwnConnection connection);

  // Goes on with an operation whose lease is over, without its client: what the completer does, and what the handler of
  // a completer's callback calls. The id is the record's. A finished one is answered from its record; an unknown id is
  // a fault of kind `invalid`.
  Result<RunOutcome> resume(const RecordId& id);

  // What to tell the client: the stored response with the markers of a replay, or a refusal in the policy's format with
  // Retry-After where that helps. A fault becomes a 503 that asks for the same request with the same key.
  HttpAnswer http_answer(const OperationRequest& request, const Result<RunOutcome>& outcome) const;
  // For a request whose operation threw: the same 503.
  HttpAnswer http_answer_after_exception(const OperationRequest& request) const;

  RunnerMetrics metrics() const;
  Database& database() const;
  const RunnerOptions& options() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace oncekey
