// RoomWatch: looks four times a second how much room the store has left, for the gateway's StoreRoom and the log.
#pragma once

#include "gateway/shared.h"
#include "net/loop.h"

namespace oncekey {

// Belongs to the loop of its timers. Has looked once when it is made.
class RoomWatch {
 public:
  RoomWatch(GatewayShared& shared, Loop& timers);

 private:
  void look();

  GatewayShared& shared_;
  Timer timer_;
  bool short_ = false;
};

} // namespace oncekey
