// lease_keeper: renews an owner's lease while it works.
#pragma once

#include "http/timers.h"

#include <oncekey/store.h>

namespace oncekey {

class LeaseKeeper {
 public:
  // Renews every third of the lease until destroyed: two renewals may fail before the lease is over.
  LeaseKeeper(Store& store, const Ownership& owner, Millis lease, Timers& timers)
      : store_(store), owner_(owner), lease_(lease), timer_(timers, [this] { renew(); }) {
    timer_.after(lease_ / 3);
  }

 private:
  void renew() {
    // The answer does not matter here: a lease that was lost shows when the result is written, which is refused then.
    store_.renew(owner_, lease_, [](const Result<FenceAnswer>&) {});
    timer_.after(lease_ / 3);
  }

  Store& store_;
  Ownership owner_;
  Millis lease_;
  Timer timer_;
};

} // namespace oncekey
