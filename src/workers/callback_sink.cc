#include <oncekey/sinks.h>

#include "workers/concurrently.h"

#include <mutex>

namespace oncekey {
namespace {

class CallbackSink final : public Sink {
 public:
  using Deliver = std::function<SinkReport(std::span<const Job>, const DeliveryTurn&)>;
  explicit CallbackSink(Deliver deliver) : deliver_(std::move(deliver)) {}

  SinkReport deliver(std::span<const Job> jobs, const DeliveryTurn& turn) override { return deliver_(jobs, turn); }

 private:
  const Deliver deliver_;
};

} // namespace

// Returning from the function accepts a job, throwing refuses it.
std::unique_ptr<Sink> callback_sink(std::function<void(const Job&)> accept, std::size_t concurrency) {
  return std::make_unique<CallbackSink>([=](std::span<const Job> jobs, const DeliveryTurn& turn) {
    SinkReport report;
    std::mutex mutex;
    concurrently(concurrency, jobs.size(), [&](std::size_t i) {
      if (turn.over()) return GoOn::no;
      const std::optional<std::string> why = thrown_by([&] { accept(jobs[i]); });
      const std::lock_guard lock(mutex);
      if (why) {
        report.refused.push_back({jobs[i].id, *why});
      } else {
        report.accepted.push_back(jobs[i].id);
      }
      return GoOn::yes;
    });
    return report;
  });
}

std::unique_ptr<Sink> batch_callback_sink(std::function<SinkReport(std::span<const Job>)> accept) {
  return std::make_unique<CallbackSink>(
      [accept = std::move(accept)](std::span<const Job> jobs, const DeliveryTurn&) { return accept(jobs); });
}

} // namespace oncekey
