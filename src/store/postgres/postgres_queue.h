// PostgresQueue: a CallQueue with threads that wait for its batches.
#pragma once

#include "store/common/call_queue.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

namespace oncekey::postgres {

// One batch. Each id takes a lock, and the server's table of locks is shared by all gateways: with its default size
// (64 for each of 100 connections) there is room for twenty-five gateways of two full batches each.
inline constexpr std::size_t kBatchIdsMax = 128;
// Fewer are not worth a second batch beside the first: what is around a batch (a thread woken, a transaction, its
// commit, the starts of its statements) costs both sides together as much processor time as some sixty rows do.
inline constexpr std::size_t kBatchIdsToShare = 64;
// A few large bodies should not make every caller wait for them.
inline constexpr std::size_t kBatchBodyBytesMax = std::size_t{4} << 20;

struct PostgresCall : QueuedCall {
  // A claim whose record was found, with a response that is too long for the answer to a claim: it is read with find.
  bool only_read = false;
};
using PostgresCallPtr = std::unique_ptr<PostgresCall>;
using CallGroup = CallQueue<PostgresCall>::Group;
using CallBatch = CallQueue<PostgresCall>::Batch;

// Safe to use from several threads. Never calls back: the thread that gets a call from here answers it.
class PostgresQueue {
 public:
  explicit PostgresQueue(Deadline::duration delay_max = BatchDelay::kDelayMax) : calls_(delay_max) {}

  // Takes the call, or leaves it with the caller and says why it cannot wait here.
  std::optional<Fault> submit(const RecordId& id, AnyCall& what, Deadline send_by, Deadline answer_by);

  // Waits for calls, until the time is up or the queue is closed; then nothing.
  CallBatch take(Deadline until);
  // Every batch taken comes back, with the calls that are to be sent again. `took`: the time of its round trip.
  void give_back(CallBatch batch, Deadline::duration took = {});
  // How many threads take batches. They share the calls there are.
  void served_by(int threads);

  // Takes out what has waited too long.
  std::vector<PostgresCallPtr> take_overdue(Deadline now);

  // While there is a fault calls are refused with it at once; those that wait are returned, to be refused as well.
  [[nodiscard]] std::vector<PostgresCallPtr> refuse_all(Fault fault);
  void accept_again();
  std::optional<Fault> fault() const;

  // Ends the waiting in take().
  void close();

 private:
  // How many ids the next batch should have.
  std::size_t share() const;

  mutable std::mutex mutex_;
  std::condition_variable filled_;
  QueueRoom room_; // outlives the calls
  CallQueue<PostgresCall> calls_;
  int threads_ = 1;
  int takers_ = 0; // threads that wait
  bool closed_ = false;
  std::optional<Fault> fault_;
};

} // namespace oncekey::postgres
