#include <oncekey/sinks.h>

#include "workers/concurrently.h"

#include <mutex>

namespace oncekey {
namespace {

// Returning from the function accepts a job, throwing refuses it.
class CallbackSink final : public Sink {
 public:
  CallbackSink(std::function<void(const Job&)> accept, std::size_t concurrency)
      : accept_(std::move(accept)), concurrency_(concurrency) {}

  SinkReport deliver(std::span<const Job> jobs, const DeliveryTurn& turn) override {
    SinkReport report;
    std::mutex mutex;
    concurrently(concurrency_, jobs.size(), [&](std::size_t i) {
      if (turn.over()) return GoOn::no;
      const std::optional<std::string> why = thrown_by([&] { accept_(jobs[i]); });
      const std::lock_guard lock(mutex);
      if (why) {
        report.refused.push_back({jobs[i].id, *why});
      } else {
        report.accepted.push_back(jobs[i].id);
      }
      return GoOn::yes;
    });
    return report;
  }

 private:
  std::function<void(const Job&)> accept_;
  const std::size_t concurrency_;
};

class BatchCallbackSink final : public Sink {
 public:
  explicit BatchCallbackSink(std::function<SinkReport(std::span<const Job>)> accept) : accept_(std::move(accept)) {}

  SinkReport deliver(std::span<const Job> jobs, const DeliveryTurn&) override { return accept_(jobs); }

 private:
  std::function<SinkReport(std::span<const Job>)> accept_;
};

} // namespace

std::unique_ptr<Sink> callback_sink(std::function<void(const Job&)> accept, std::size_t concurrency) {
  return std::make_unique<CallbackSink>(std::move(accept), concurrency);
}

std::unique_ptr<Sink> batch_callback_sink(std::function<SinkReport(std::span<const Job>)> accept) {
  return std::make_unique<BatchCallbackSink>(std::move(accept));
}

} // namespace oncekey
