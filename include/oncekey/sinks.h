// Sinks: where the enqueuer (workers.h) hands staged jobs over.
//
// A sink gets a batch in order of id and says for each job whether it was accepted.
//
//   accepted   the job is durable on the other side; its row is deleted next
//   refused    this job cannot be taken; it is tried again after a backoff, and becomes a dead letter after too many
//   neither    it is handed over again later, without an attempt counted
//
// A sink that stops half-way therefore reports what it knows and no more. Every sink may get the same job twice, after
// a crash between accepting and deleting; the id is the same then.
//
// Ready-made sinks call a function, POST to a URL, or write to Redis. An application's own sink derives from Sink:
//
//     class KafkaSink final : public oncekey::Sink {
//       oncekey::SinkReport deliver(std::span<const oncekey::Job> jobs, const oncekey::DeliveryTurn& turn) override {
//         oncekey::SinkReport report;
//         for (const oncekey::Job& job : jobs) {
//           if (turn.over()) break;  // the rest is handed over again later
//           if (!producer_.send_and_wait(job.name, job.args)) {
//             report.down = "the broker does not answer";
//             break;
//           }
//           report.accepted.push_back(job.id);
//         }
//         return report;
//       }
//     };
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

// What became of a batch. Ids that were not in the batch are ignored.
struct SinkReport {
  struct RefusedJob {
    JobId id = 0;
    std::string why;
    bool for_good = false; // the receiver will never take it: a dead letter at once
  };
  std::vector<JobId> accepted;
  std::vector<RefusedJob> refused;
  // Why the sink as a whole did not answer. It gets no jobs for a while (EnqueuerOptions::backoff_first), and no
  // attempt is counted for the jobs that are neither accepted nor refused.
  std::optional<std::string> down;
};

// How long a sink may go on with a batch. Made by the enqueuer; a test of a sink makes its own.
class DeliveryTurn {
 public:
  DeliveryTurn(std::chrono::steady_clock::time_point until, std::function<bool()> stopping = nullptr)
      : until_(until), stopping_(std::move(stopping)) {}
  // To be asked before every job: the enqueuer is stopping, or its claim on the batch ends. From any thread.
  bool over() const { return std::chrono::steady_clock::now() >= until_ || (stopping_ && stopping_()); }
  std::chrono::steady_clock::time_point until() const { return until_; }

 private:
  std::chrono::steady_clock::time_point until_;
  std::function<bool()> stopping_;
};

class Sink {
 public:
  virtual ~Sink() = default;
  // Hands the jobs over and waits for the answers. Begins no further job when the turn is over: another enqueuer may
  // have the rest by then. Called by one enqueuer from one thread at a time. May throw: that counts as `down`, with
  // nothing accepted.
  virtual SinkReport deliver(std::span<const Job> jobs, const DeliveryTurn& turn) = 0;
};

// Calls a function for every job. Returning accepts the job, throwing refuses it, with what() as the reason. With a
// `concurrency` of more than 1 the function is called from that many threads at once, and jobs are begun but not ended
// in order of id.
std::unique_ptr<Sink> callback_sink(std::function<void(const Job&)> accept, std::size_t concurrency = 1);
// Calls a function for the whole batch, for consumers that take many at once. It reports as Sink::deliver does.
std::unique_ptr<Sink> batch_callback_sink(std::function<SinkReport(std::span<const Job>)> accept);

struct HttpSinkOptions {
  // Of one request, connecting included.
  Millis timeout = std::chrono::seconds(15);
  std::string content_type = "application/json";
  // Sent as `Authorization`, if not empty.
  std::string authorization;
  // Requests under way at the same time. With more than 1 jobs are begun but not ended in order of id.
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
  // For connecting and the answers to one group of commands; a call_timeout in the URL comes first.
  Millis timeout = std::chrono::seconds(5);
};
// The URLs of Redis sinks: redis://[user[:password]@]host[:port][/database], or rediss:// for TLS with the server's
// certificate verified. User and password may be percent-encoded; an IPv6 address stands in brackets. Settings behind
// a `?`: call_timeout, password_file, tls_ca, tls_cert, tls_key. Streams also take redis+cluster:// and
// rediss+cluster://host:port,host:port,….

// Pushes each job to a list as Sidekiq reads it: LPUSH queue:QUEUE with class (the job's name), args, jid (the job's id
// as 24 hex digits), queue, created_at, enqueued_at and retry; QUEUE is added to the set `queues`. Args that are not a
// JSON array become the only argument; args that are not JSON at all become a string.
Result<std::unique_ptr<Sink>> sidekiq_sink(std::string_view redis_url, std::string queue,
                                           RedisSinkOptions options = {});
// Appends each job to a stream: XADD STREAM * id ID name NAME args ARGS.
Result<std::unique_ptr<Sink>> redis_stream_sink(std::string_view redis_url, std::string stream,
                                                RedisSinkOptions options = {});

} // namespace oncekey
