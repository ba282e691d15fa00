// SpanExporter: sends spans to a collector by OTLP over HTTP, on a thread of its own.
//
// Spans are gathered and sent once a second, or earlier when there are many. No request waits: when the queue is full,
// or the collector does not take a batch, spans are dropped and counted.
#pragma once

#include "base/log.h"
#include "base/url.h"
#include "http/fetch.h"
#include "trace/otlp_json.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace oncekey {

// Safe to use from several threads.
class SpanExporter {
 public:
  // `endpoint` is the collector's, as http://127.0.0.1:4318; /v1/traces is appended to its path.
  static Result<std::unique_ptr<SpanExporter>> open(Url endpoint, TraceResource resource, Log& log);
  // Sends what is left, for a moment.
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  // Takes all of them or none. Returns at once.
  void take(std::vector<Span> spans);

  struct Counts {
    std::uint64_t sent = 0;
    std::uint64_t dropped = 0;
  };
  Counts counts() const { return {sent_, dropped_}; }

 private:
  SpanExporter(Url endpoint, TraceResource resource, std::unique_ptr<Fetcher> fetcher, Log& log);
  void run();
  void send(const std::vector<Span>& spans, std::chrono::milliseconds patience);

  const Url endpoint_;
  const TraceResource resource_;
  const std::unique_ptr<Fetcher> fetcher_;
  Log& log_;
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<std::uint64_t> dropped_{0};

  std::mutex mutex_; // guards the next three
  std::condition_variable wake_;
  std::vector<Span> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

} // namespace oncekey
