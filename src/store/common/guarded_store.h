// GuardedStore: what stands between the gateway and a server on the other side of a network.
//
// A call over a network has a third ending besides yes and no: it may have happened. The store below makes each call
// once and says which of the three it was (a fault of kind `timeout` is the third); everything that follows from it is
// done here, the same for every kind of server:
//
//   claim      is sent again with the same token. A claim that finds its own token on a record in progress is its
//              owner once it has renewed the lease: a read does not show whether the standbys have the claim.
//              A claim that stays unknown is answered as a fault, so that the request is not executed; when the store
//              is back, the record is released if it has this claim's token.
//   complete   is sent again for some seconds, since the work is done and its answer would be lost. If the record then
//              says `lost`, it is read: with this owner's fence, token and response, this owner has completed it.
//   release, hold   in the same way, for a shorter time, since a client is waiting for a refusal.
//   renew      is not repeated: the next renewal is.
//
// An owner of this process never loses its record to a claim of this process (Store::owners_here): the claim is sent
// with Abandoned::leave while such an owner is at work, and renews a lease that it finds over.
//
//   stage      is sent again: the id tells whether an earlier attempt was made, and then the answer says staged.
//   end of an attempt at a job   as complete.
//
// Each server of the store has a circuit breaker. While it is open, claims of that server's keys are refused at once;
// the guard itself asks the server now and then, at no client's cost, and closes the breaker when it answers. Owners
// that write what they have done are let through: refusing them would turn done work into unknown work. Completed
// records that were seen lately are answered from memory, whatever the server does.
#pragma once

#include "base/log.h"
#include "core/store.h"

namespace oncekey {

struct GuardOptions {
  Log& log;
  // Claims are refused while the store's level is below this.
  Durability least_durability = Durability::none;
  // How long a claim of unknown outcome is tried again before its caller hears of it.
  Millis claim_patience{3000};
  // The same for the answer of an owner, and for its release or hold.
  Millis complete_patience{10'000};
  Millis release_patience{1500};
};

std::unique_ptr<Store> guarded(std::unique_ptr<Store> server, GuardOptions options);

} // namespace oncekey
