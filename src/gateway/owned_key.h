// owned_key: a key whose claim this gateway has made, until it is settled.
//
// An owner that settles a key stops renewing it first: a renewal behind the release would claim it again. A release or
// hold that fails leaves the key claimed until its lease is over, and then to on_abandoned.
#pragma once

#include "core/settle.h"
#include "gateway/lease_keeper.h"
#include "gateway/thread.h"

#include <optional>

namespace oncekey {

class OwnedKey {
 public:
  OwnedKey(GatewayThread& thread, const Ownership& owner, Millis lease)
      : thread_(thread), owner_(owner), lease_(lease) {}
  OwnedKey(const OwnedKey&) = delete;
  OwnedKey& operator=(const OwnedKey&) = delete;

  const Ownership& owner() const { return owner_; }
  // From here on the lease is renewed, and the owner is one of the live calls.
  void keep() { keeper_.emplace(thread_.shared.store, thread_.shared.live_calls, owner_, lease_, thread_.loop); }

  // Renews now. If the key is not ours any more, it is released: nothing was sent.
  Task<bool> renew();
  // Writes the answer and wakes the requests that wait for it. A fault is in the log already.
  Task<Result<FenceAnswer>> complete(StoredResponse response);
  // Ends the ownership without an answer: by release, hold or abandon.
  Task<void> let_go(Settlement how);
  // Nothing renews the lease any more, and the key stays claimed until it is over.
  void give_up();

 private:
  GatewayThread& thread_;
  const Ownership owner_;
  const Millis lease_;
  std::optional<LeaseKeeper> keeper_;
};

} // namespace oncekey
