// Sinks: where the enqueuer hands staged jobs over.
//
// A sink gets a batch in order of id and says for each job whether it was accepted. Accepted means durable on the other
// side: the job's row is deleted next. Whatever is neither accepted nor refused is handed over again later, so a sink
// that stops half-way simply reports what it knows. Every sink may get the same job twice, after a crash between
// accepting and deleting; the id is the same then.
#pragma once

#include <oncekey/jobs.h>
#include <oncekey/result.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

struct SinkReport {
  struct RefusedJob {
    JobId id = 0;
    std::string why;
    bool for_good = false; // the receiver will never take it: a dead letter at once
  };
  std::vector<JobId> accepted;
  // Each of these is tried again after a backoff of its own, and becomes a dead letter after too many.
  std::vector<RefusedJob> refused;
  // The sink as a whole did not answer: it is left alone for a while, and no job is blamed.
  std::optional<std::string> down;
};

// How long a sink may go on with a batch.
class DeliveryTurn {
 public:
  DeliveryTurn(std::chrono::steady_clock::time_point until, std::function<bool()> stopping = nullptr)
      : until_(until), stopping_(std::move(stopping)) {}
  // Looked at before every job: the enqueuer is stopping, or its claim on the batch ends. From any thread.
  bool over() const { return std::chrono::steady_clock::now() >= until_ || (stopping_ && stopping_()); }
  std::chrono::steady_clock::time_point until() const { return until_; }

 private:
  std::chrono::steady_clock::time_point until_;
  std::function<bool()> stopping_;
};

class Sink {
 public:
  virtual ~Sink() = default;
  // Should begin no further job when the turn is over: others take the rest. Called by one enqueuer from one thread at
  // a time. May throw: that counts as `down`, with nothing accepted.
  virtual SinkReport deliver(std::span<const Job> jobs, const DeliveryTurn& turn) = 0;
};

// Calls a function for every job; one that throws refuses the job. With a `concurrency` of more than 1 it is called
// from so many threads at once, and jobs are begun but not ended in order of id.
std::unique_ptr<Sink> callback_sink(std::function<void(const Job&)> accept, std::size_t concurrency = 1);
// Calls a function for the whole batch, for callbacks that gather.
std::unique_ptr<Sink> batch_callback_sink(std::function<SinkReport(std::span<const Job>)> accept);

struct HttpSinkOptions {
  // Of one request, connecting included.
  Millis timeout = std::chrono::seconds(15);
  std::string content_type = "application/json";
  // Sent as `Authorization`, if not empty.
  std::string authorization;
  // How many requests are under way at a time. With more than 1 jobs are begun but not ended in order of id.
  std::size_t concurrency = 1;
  // PEM certificates to trust for https://; the system's when empty.
  std::string ca_file;
};
// POSTs the args of each job to the URL (http:// or https://), with `Idempotency-Key: <job id>`, `Oncekey-Job: <name>`
// and `Oncekey-Attempt: <n>`. Connections are kept and used again. What an answer means (docs/WEBHOOKS.md has the table
// of all statuses):
//
//   2xx                                        the job is accepted
//   410                                        the job is a dead letter at once
//   no connection                              the sink is down
//   broken off or timed out, 408 425 429 503   two in a row: the sink is down
//   1xx, 3xx, 401 403 407, other 5xx           ten in a row: the sink is down
//   other 4xx                                  the job is refused, and tried again after a pause
//
// Fewer in a row, with a job after them that gets through, refuse the jobs they were for: one job does not hold up the
// others.
Result<std::unique_ptr<Sink>> http_sink(std::string_view url, HttpSinkOptions options = {});

struct RedisSinkOptions {
  Millis timeout = std::chrono::seconds(5);
};
// Pushes each job to a list as Sidekiq reads it: LPUSH queue:QUEUE with class (the job's name), args, jid (the job's id
// as 24 hex digits), queue, created_at, enqueued_at and retry; QUEUE is added to the set `queues`. Args that are not a
// JSON array become the only argument; args that are not JSON at all become a string. URL:
// redis://[user:pass@]host:port/db.
Result<std::unique_ptr<Sink>> sidekiq_sink(std::string_view redis_url, std::string queue,
                                           RedisSinkOptions options = {});
// Appends each job to a stream: XADD STREAM * id ID name NAME args ARGS.
Result<std::unique_ptr<Sink>> redis_stream_sink(std::string_view redis_url, std::string stream,
                                                RedisSinkOptions options = {});

} // namespace oncekey
