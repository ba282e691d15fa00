// lease_keeper: renews an owner's lease while it works, and says that it does.
#pragma once

#include "gateway/live_calls.h"
#include "net/loop.h"

#include "core/store.h"

namespace oncekey {

class LeaseKeeper {
 public:
  // Renews every third of the lease until destroyed: two renewals may fail before the lease is over. As long, the owner
  // is one of the live calls.
  LeaseKeeper(Store& store, LiveCalls& live, const Ownership& owner, Millis lease, Loop& timers)
      : store_(store), live_(live), call_{owner, lease}, timer_(timers, [this] { renew(); }) {
    live_.add(call_);
    timer_.after(lease / 3);
  }
  ~LeaseKeeper() { live_.remove(call_); }
  LeaseKeeper(const LeaseKeeper&) = delete;
  LeaseKeeper& operator=(const LeaseKeeper&) = delete;

 private:
  void renew() {
    // The answer does not matter here: a lease that was lost shows when the result is written, which is refused then.
    store_.renew(call_.owner, call_.lease, [](const Result<FenceAnswer>&) {});
    live_.renewed(call_);
    timer_.after(call_.lease / 3);
  }

  Store& store_;
  LiveCalls& live_;
  LiveCalls::Call call_;
  Timer timer_;
};

} // namespace oncekey
