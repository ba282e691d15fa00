// waiters: requests that found their key in progress and may wait for the answer.
//
// They are woken by the completion itself, not by polling. A waiter joins first and looks at the record again after
// that: a completion between the two finds it on the list.
#pragma once

#include "gateway/sharded.h"
#include "net/loop.h"

#include <oncekey/record.h>

#include <unordered_map>

namespace oncekey {

class Waiters {
 public:
  class Ticket;

  // Nothing when `most` are waiting for this record already.
  std::unique_ptr<Ticket> join(const RecordId& id, Loop& loop, std::uint32_t most);

  // Wakes all requests that wait for this record. From any thread.
  void notify(const RecordId& id);
  // Wakes all waiting requests, for the end of the process.
  void notify_all();

  std::uint64_t waiting() const { return waiting_.load(std::memory_order_relaxed); }

 private:
  struct Waiter;
  static void wake(const std::shared_ptr<Waiter>& waiter);
  void leave(const RecordId& id, const std::shared_ptr<Waiter>& waiter);

  Sharded<std::unordered_map<RecordId, std::vector<std::shared_ptr<Waiter>>>> waiters_;
  std::atomic<std::uint64_t> waiting_{0};
};

// A place on the list, given up when it is destroyed.
class Waiters::Ticket {
 public:
  ~Ticket();
  // Returns when notified since the last call, or at `due`.
  Task<void> wait_until(MonotonicTime due);

 private:
  friend class Waiters;
  Ticket(Waiters& owner, const RecordId& id, std::shared_ptr<Waiter> waiter);
  Waiters& owner_;
  RecordId id_;
  std::shared_ptr<Waiter> waiter_;
};

} // namespace oncekey
