#include "cli/worker.h"

#include <pthread.h>

#include <utility>

namespace oncekey {

void Worker::start(const char* name) {
  thread = std::thread([this, name] {
    pthread_setname_np(pthread_self(), name);
    loop.run();
  });
}

void Worker::stop() {
  loop.post([this] {
    for (const auto& upstream : upstreams) upstream->close_idle();
    loop.stop();
  });
  if (thread.joinable()) thread.join();
}

Result<std::unique_ptr<Worker>> make_gateway_worker(const WorkerParts& parts) {
  GatewayShared& shared = parts.shared;
  auto worker = std::make_unique<Worker>();
  Result<UpstreamPools> pools = make_pools(shared.config(), shared.upstreams, worker->loop, shared.upstream_open);
  if (!pools) return std::move(pools).fault();
  worker->upstreams = std::move(pools).value();
  worker->gateway = std::make_unique<Gateway>(shared, worker->upstreams, worker->loop);
  worker->handler = worker->gateway.get();
  if (parts.couriers != nullptr) {
    Result<std::unique_ptr<Handler>> inbox =
        make_inbox(shared, parts.delivery_metrics, *parts.couriers, worker->loop, *worker->handler);
    if (!inbox) return std::move(inbox).fault();
    worker->inbox = std::move(inbox).value();
    worker->handler = worker->inbox.get();
  }
  if (parts.spans != nullptr) {
    worker->tracing = std::make_unique<Tracing>(*worker->handler, *parts.spans, shared.config().trace_sample);
    worker->handler = worker->tracing.get();
  }
  if (parts.access_log != nullptr) {
    worker->access_log = std::make_unique<AccessLog>(*worker->handler, *parts.access_log, parts.log_format);
    worker->handler = worker->access_log.get();
  }
  return worker;
}

} // namespace oncekey
