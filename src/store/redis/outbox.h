// Outbox: the calls that wait for a server, and when they leave.
//
// While a group of calls is on its way the next ones gather, so that the busier a server is the larger its groups
// become. A server that syncs before it answers pays a sync for every group: there one group is under way at a time,
// and those who were just answered get a moment to come back before it leaves.
#pragma once

#include "store/common/returning.h"
#include "store/redis/call.h"

#include <utility>
#include <vector>

namespace oncekey::redis {

enum class Departure {
  nothing,       // nobody waits, or the groups under way have to be answered first
  now,           // take() and send
  when_gathered, // at gather_until(), or with so many more calls as missing() says
};

class Outbox {
 public:
  void add(CallPtr call) {
    waiting_.push_back(std::move(call));
    returning_.came();
  }
  bool idle() const { return waiting_.empty() && groups_ == 0; }

  // `syncs`: whether the server syncs before it answers.
  Departure departure(bool syncs, Deadline now);
  Deadline gather_until() const { return returning_.until(); }
  std::size_t missing() const { return returning_.missing(); }

  // What waits, as a group that is now under way.
  std::vector<CallPtr> take(Deadline now);
  // A group of so many calls was answered, in whatever way.
  void group_done(std::size_t calls, Deadline now);
  // What waits, without sending it.
  std::vector<CallPtr> drop() { return std::exchange(waiting_, {}); }

 private:
  std::vector<CallPtr> waiting_;
  int groups_ = 0;     // under way
  Deadline left_at_{}; // the last of them
  Returning returning_;
};

} // namespace oncekey::redis
