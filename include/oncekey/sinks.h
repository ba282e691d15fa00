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
  Millis connect_timeout = std::chrono::seconds(5);
  // From the connection made to the end of the answer's head, with the sending in between.
  Millis answer_timeout = std::chrono::seconds(15);
  std::string content_type = "application/json";
  // Sent as `Authorization`, if not empty.
  std::string authorization;
  // How many requests are under way at a time. With more than 1 jobs are begun but not ended in order of id.
  std::size_t concurrency = 1;
};
// POSTs the args of each job to the URL (http:// or https://), with `Idempotency-Key: <job id>`, `Oncekey-Job: <name>`
// and `Oncekey-Attempt: <n>`. Any 2xx accepts. A connection that cannot be made means that the sink is down. So do two
// in a row of: an exchange that breaks off or times out, 408, 425, 429, 503; and ten other 5xx in a row. Fewer of them,
// with a job after them getting through, refuse the jobs they were for: one job does not hold up the others. Every
// other status refuses the job.
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
