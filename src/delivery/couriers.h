// Couriers: one for each webhook and destination of a gateway, on one event loop.
//
// A job is looked for when one was staged here, when a place gets free, and every now and then, since other gateways
// may have staged or left some. One whose receiver is slow or dead waits for its own answers alone.
#pragma once

#include "delivery/metrics.h"
#include "gateway/await_store.h"
#include "gateway/shared.h"
#include "net/loop.h"

namespace oncekey {

class Couriers {
 public:
  // For the endpoints of the configuration. A fault says which cannot be used and why.
  static Result<std::unique_ptr<Couriers>> make(GatewayShared& shared, DeliveryMetrics& metrics, Loop& loop);

  ~Couriers();

  // On its loop.
  void start();
  // They take nothing any more, and give back what they have not begun to deliver.
  void stop();

  // Something was staged for this endpoint. From any thread.
  void poke(const Endpoint& endpoint);
  // All have stopped, and nothing is on its way any more: no job, and no call to the store. From any thread.
  bool over() const;

 private:
  struct Line;
  Couriers(GatewayShared& shared, DeliveryMetrics& metrics, Loop& loop);
  Status add(const Endpoint& endpoint, std::uint64_t longest_message, std::uint64_t share);

  GatewayShared& shared_;
  DeliveryMetrics& metrics_;
  Loop& loop_;
  Timer poll_;
  std::vector<std::unique_ptr<Line>> lines_;
};

} // namespace oncekey
