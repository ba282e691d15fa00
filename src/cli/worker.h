// Worker: one event loop, one thread, and what runs on it.
#pragma once

#include "delivery/inbox.h"
#include "gateway/access_log.h"
#include "gateway/gateway.h"
#include "gateway/tracing.h"
#include "net/loop.h"

#include <oncekey/result.h>

#include <memory>
#include <thread>

namespace oncekey {

struct Worker {
  Loop loop;
  // Those that serve clients have these; null where the configuration does not ask for them.
  UpstreamPools upstreams;
  std::unique_ptr<Gateway> gateway;
  std::unique_ptr<Handler> inbox;
  std::unique_ptr<Tracing> tracing;
  std::unique_ptr<AccessLog> access_log;
  Handler* handler = nullptr; // the outermost of them
  std::thread thread;

  void start(const char* name);
  // Waits for the thread's end.
  void stop();
};

// What the handlers of a worker for clients are made of. Null where the configuration does not ask for it.
struct WorkerParts {
  GatewayShared& shared;
  DeliveryMetrics& delivery_metrics;
  Couriers* couriers;
  SpanExporter* spans;
  LineFile* access_log;
  LogFormat log_format;
};
Result<std::unique_ptr<Worker>> make_gateway_worker(const WorkerParts& parts);

} // namespace oncekey
