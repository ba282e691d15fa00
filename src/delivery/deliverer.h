// Deliverer: takes staged messages out of the store and brings them to their endpoints.
//
// At least once, and never by two at a time: a message is leased to one deliverer, of all gateways on the store, for
// longer than an attempt may take. Whatever ends the process, the lease runs out and the message is taken again; the
// receiver tells a repetition by its Idempotency-Key. Nothing is kept here that the store does not know.
//
// Runs on one event loop of its own. A message is looked for when one was staged here, when a place gets free, and
// every now and then, since other gateways may have staged or left some.
#pragma once

#include "delivery/metrics.h"
#include "gateway/await_store.h"
#include "gateway/shared.h"
#include "http/timers.h"
#include "http/upstream.h"

#include <oncekey/store.h>

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace oncekey {

struct Delivered;

class Deliverer {
 public:
  // The endpoints are those of the configuration. A fault says which cannot be used and why.
  static Result<std::unique_ptr<Deliverer>> make(GatewayShared& shared, DeliveryMetrics& metrics, Timers& timers);
  ~Deliverer();

  // On its thread.
  void start();
  // Takes nothing any more, and gives back what it has taken and not begun to deliver.
  void stop();

  // Something was staged. From any thread.
  void poke();
  // Messages taken and not ended yet. From any thread.
  std::size_t held() const { return held_.load(std::memory_order_relaxed); }

 private:
  // One endpoint, and what is on its way there.
  struct Line {
    const Endpoint& endpoint;
    std::unique_ptr<UpstreamPool> pool;
    std::atomic<std::uint32_t> connections{0};
    std::uint32_t under_way = 0;
    std::deque<TakenJob> waiting;
    prometheus::Gauge& gauge;

    Line(const Endpoint& place, prometheus::Gauge& shown) : endpoint(place), gauge(shown) {}
    std::size_t held() const { return under_way + waiting.size(); }
    // Twice as many as are delivered at a time, so that none of the places stays empty while more are fetched.
    std::size_t held_max() const { return std::size_t{2} * endpoint.concurrency; }
  };

  Deliverer(GatewayShared& shared, DeliveryMetrics& metrics, Timers& timers);

  void look();
  std::size_t room() const;
  Task<void> take(std::size_t limit);
  void accept(TakenJob job);
  void start_waiting(Line& line);
  Task<void> deliver(Line& line, TakenJob job);
  Task<void> call(Line& line, const TakenJob& job, Delivered& delivered);
  // Tells the store, and frees the place.
  Task<void> end(std::string endpoint, Ownership owner, AttemptEnd end);
  void give_back(TakenJob job, Millis pause);
  bool still_ours(const Line& line, const TakenJob& job) const;
  double chance() { return std::uniform_real_distribution<double>(0, 1)(random_); }

  GatewayShared& shared_;
  DeliveryMetrics& metrics_;
  Timers& timers_;
  Wakeups wakeups_;
  Timer poll_;
  std::vector<std::unique_ptr<Line>> lines_;
  Millis lease_{};
  std::minstd_rand random_;
  std::atomic<std::size_t> held_{0};
  std::atomic<bool> poked_{false};
  bool looking_ = false;
  bool look_again_ = false;
  bool stopping_ = false;
  bool store_failing_ = false; // said once in the log
};

} // namespace oncekey
