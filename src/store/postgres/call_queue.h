// CallQueue: calls in lanes, one lane for each id.
//
// Of one id at most one call is under way at a time, in the order they came: within a gateway nobody meets a lock that
// another of its own batches holds. What waits behind it goes out together where one answer serves all: a storm of
// retries of one key costs one claim for each round trip and not one for each retry.
//
// A batch costs the server much, however few calls it has: those who were just answered get a moment to come back
// before the next one leaves, and the workers that take batches share what there is.
#pragma once

#include "store/common/returning.h"
#include "store/postgres/calls.h"

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

namespace oncekey::postgres {

// As in the RocksDB store (store/rocksdb/writer.h): new claims are refused first, so that owners may finish.
inline constexpr std::size_t kWaitingCallsMax = 65536;
inline constexpr std::size_t kWaitingCallsHardMax = 4 * kWaitingCallsMax;
inline constexpr std::size_t kWaitingBytesMax = std::size_t{256} << 20;
inline constexpr std::size_t kWaitingBytesHardMax = 4 * kWaitingBytesMax;

// One batch. Each id takes a lock, and the server's table of locks is shared by all gateways: with its default size
// (64 for each of 100 connections) there is room for twenty-five gateways of two full batches each.
inline constexpr std::size_t kBatchIdsMax = 128;
// Fewer are not worth a second batch beside the first: the statements around a batch cost the server as much as some
// twenty rows do.
inline constexpr std::size_t kBatchIdsToShare = 32;
// A few large bodies should not make everybody wait for them.
inline constexpr std::size_t kBatchBodyBytesMax = std::size_t{4} << 20;

// Calls for one id that one answer may serve: the first is asked for, the others share what it finds. More than one
// only for claims, and for finds with the same interest.
struct Group {
  RecordId id;
  std::vector<Call> calls;
  // For groups given back: how long to leave the id alone.
  Millis rest{0};
};
using Batch = std::vector<Group>;

// Safe to use from several threads. Never calls back: whoever gets a call from here answers it.
class CallQueue {
 public:
  explicit CallQueue(Deadline::duration gather_time_max = Returning::kTimeMax) : returning_(gather_time_max) {}

  // The call comes back with a fault if it cannot wait here.
  struct Refusal {
    Call call;
    Fault fault;
  };
  std::optional<Refusal> submit(Call call);

  // Waits for calls, until the time is up or the queue is closed; then nothing.
  Batch take(Deadline until);
  // Every batch taken comes back, with the calls that are to be asked for again. `took`: how long its round trip was.
  void give_back(Batch batch, Deadline::duration took = {});
  // How many take batches.
  void served_by(int workers);

  // Takes out what has waited too long.
  std::vector<Call> take_overdue(Deadline now);

  // While there is a fault calls are refused with it at once; those that wait are given back to be refused as well.
  [[nodiscard]] std::vector<Call> refuse_all(Fault fault);
  void accept_again();
  std::optional<Fault> fault() const;

  // Nobody waits in take() any more.
  void close();

 private:
  struct Lane {
    std::vector<Call> waiting;
    bool under_way = false;
    bool resting = false;
  };
  using Lanes = std::unordered_map<RecordId, Lane>;

  void wake_rested(Deadline now);
  // How many ids the next batch should have.
  std::size_t share() const;
  bool has_gathered() const { return returning_.missing() == 0 || ready_.size() >= share(); }
  Group take_group(const RecordId& id, Lane& lane);
  void forget(const Call& call);
  template <class Condition>
  std::vector<Call> take_out(Condition condition);

  mutable std::mutex mutex_;
  std::condition_variable filled_;
  Lanes lanes_;
  std::deque<RecordId> ready_; // lanes with calls and none under way; may name lanes that are empty by now
  std::multimap<Deadline, RecordId> resting_;
  std::size_t ids_under_way_ = 0;
  Returning returning_;
  int workers_ = 1;
  std::size_t calls_ = 0;
  std::size_t bytes_ = 0;
  int takers_ = 0; // that wait
  bool closed_ = false;
  std::optional<Fault> fault_;
};

} // namespace oncekey::postgres
