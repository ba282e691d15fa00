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
#include "http/upstream.h"
#include "net/loop.h"

#include "core/store.h"

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
  static Result<std::unique_ptr<Deliverer>> make(GatewayShared& shared, DeliveryMetrics& metrics, Loop& timers);
  ~Deliverer();

  // On its thread.
  void start();
  // Takes nothing any more, and gives back what it has taken and not begun to deliver.
  void stop();

  // Something was staged. From any thread.
  void poke();
  // Has stopped, and nothing is on its way any more: no message, and no call to the store. From any thread.
  bool over() const { return stopped_.load() && open_.load() == 0; }

 private:
  // A message that was taken. Its body counts for its endpoint and for the gateway as long as it is in memory.
  class Message {
   public:
    Message(GatewayShared& shared, std::uint64_t& held_by_line, TakenJob taken);
    Message(Message&& other) noexcept;
    Message& operator=(Message&&) = delete;
    ~Message() { let_go(); }
    void let_go();

    TakenJob job;

   private:
    Holding held_; // in no caller's share
    std::uint64_t& held_by_line_;
  };

  // One endpoint, and what is on its way there.
  struct Line {
    const Endpoint& endpoint;
    const Millis lease;
    std::unique_ptr<UpstreamPool> pool;
    std::atomic<std::uint32_t> connections{0};
    const std::uint64_t message_bytes_max;
    std::uint64_t share = 0; // of the memory for messages: a receiver that hangs holds up its own alone
    std::uint64_t held = 0;
    std::uint32_t under_way = 0;
    std::deque<Message> waiting;
    bool looking = false;
    bool look_again = false;
    bool failing = false; // the store, for this line; said once in the log
    prometheus::Gauge& gauge;
    prometheus::Counter& delivered;

    Line(const Endpoint& place, std::uint64_t longest_message, DeliveryMetrics& metrics);
    // Twice as many as are delivered at a time, so that none of the places stays empty while more are fetched; but no
    // more than surely fit into its share, or one.
    std::size_t room() const;
  };

  Deliverer(GatewayShared& shared, DeliveryMetrics& metrics, Loop& timers);

  void look();
  void look(Line& line);
  Task<void> take(Line& line, std::size_t limit);
  void start_waiting(Line& line);
  Task<void> deliver(Line& line, Message message);
  Task<void> call(Line& line, const TakenJob& job, Delivered& delivered);
  // Tells the store how the attempt ended, or that none was made.
  enum class Tried { no, yes };
  Task<void> end(const Line& line, const TakenJob& job, AttemptEnd end, Tried tried);
  Task<void> give_back(Line& line, Message message);
  // Whether the lease outlives an attempt that begins now. One that does not might meet the next owner's.
  bool still_ours(const Line& line, const TakenJob& job) const;
  double chance() { return std::uniform_real_distribution<double>(0, 1)(random_); }

  GatewayShared& shared_;
  DeliveryMetrics& metrics_;
  Loop& timers_;
  Wakeups wakeups_;
  Timer poll_;
  std::vector<std::unique_ptr<Line>> lines_;
  std::minstd_rand random_;
  std::atomic<std::uint32_t> open_{0}; // messages and takes under way
  std::atomic<bool> stopped_{false};
  std::atomic<bool> poked_{false};
  std::atomic<bool> has_room_{true}; // while it has none, whoever stages something need not wake this thread
};

} // namespace oncekey
