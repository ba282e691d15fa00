#include <oncekey/sinks.h>

#include <exception>

namespace oncekey {
namespace {

class CallbackSink final : public Sink {
 public:
  explicit CallbackSink(std::function<void(const Job&)> accept) : accept_(std::move(accept)) {}

  SinkReport deliver(std::span<const Job> jobs, std::chrono::steady_clock::time_point until) override {
    SinkReport report;
    report.accepted.reserve(jobs.size());
    for (const Job& job : jobs) {
      if (std::chrono::steady_clock::now() >= until) break;
      try {
        accept_(job);
        report.accepted.push_back(job.id);
      } catch (const std::exception& error) {
        report.refused.push_back({job.id, error.what()});
      } catch (...) {
        report.refused.push_back({job.id, "something that is no std::exception was thrown"});
      }
    }
    return report;
  }

 private:
  std::function<void(const Job&)> accept_;
};

class BatchCallbackSink final : public Sink {
 public:
  explicit BatchCallbackSink(std::function<SinkReport(std::span<const Job>)> accept) : accept_(std::move(accept)) {}

  SinkReport deliver(std::span<const Job> jobs, std::chrono::steady_clock::time_point) override {
    return accept_(jobs);
  }

 private:
  std::function<SinkReport(std::span<const Job>)> accept_;
};

} // namespace

std::unique_ptr<Sink> callback_sink(std::function<void(const Job&)> accept) {
  return std::make_unique<CallbackSink>(std::move(accept));
}

std::unique_ptr<Sink> batch_callback_sink(std::function<SinkReport(std::span<const Job>)> accept) {
  return std::make_unique<BatchCallbackSink>(std::move(accept));
}

} // namespace oncekey
