// owned_key: a key whose claim this gateway has made, until it is settled.
//
// An owner that settles a key stops renewing it first: a renewal behind the release would claim it again. A release or
// hold that fails leaves the key claimed until its lease is over, and then to on_abandoned.
#pragma once

#include "core/settle.h"
#include "gateway/shared.h"

namespace oncekey {

// Renews an owner's lease while it works, and says that it does.
class LeaseKeeper {
 public:
  // Renews every third of the lease until destroyed: two renewals may fail before the lease is over. As long, the owner
  // is one of the live calls.
  LeaseKeeper(Store& store, LiveCalls& live, const Ownership& owner, Millis lease, Time claimed_at, Loop& loop)
      : store_(store), live_(live), call_{owner, lease, claimed_at}, timer_(loop, [this] { renew(); }) {
    live_.add(call_);
    timer_.after(lease / 3);
  }
  ~LeaseKeeper() { live_.remove(call_); }

  void renewed() { live_.renewed(call_); }
  void forwarded() { live_.forwarded(call_); }
  Course course() const { return live_.course_of(call_); }

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

class OwnedKey {
 public:
  OwnedKey(GatewayThread& thread, const RecordId& id, const Claimed& claimed, Millis lease)
      : thread_(thread), owner_{id, claimed.fence, claimed.token}, lease_(lease), claimed_at_(claimed.now) {}

  const Ownership& owner() const { return owner_; }
  // From here on the lease is renewed, and the owner is one of the live calls.
  void keep() {
    keeper_.emplace(thread_.shared.store, thread_.shared.live_calls, owner_, lease_, claimed_at_, thread_.loop);
  }
  // The call to the upstream begins.
  void forwarded() {
    if (keeper_) keeper_->forwarded();
  }

  // Renews now. If the key is not ours any more, it is released: nothing was sent.
  Task<bool> renew();
  // Writes the answer and wakes the requests that wait for it. A fault is in the log already.
  Task<Result<FenceAnswer>> complete(StoredResponse response);
  // The same without a coroutine of its own: co_await write(response) gives what note_written() is told then.
  // `response` is moved from.
  auto write(StoredResponse& response) {
    if (keeper_) response.course = keeper_->course();
    return await_store<FenceAnswer>(thread_.loop, [this, &response](auto done) {
      thread_.shared.store.complete(owner_, std::move(response), std::move(done));
    });
  }
  void note_written(const Result<FenceAnswer>& written, MonotonicTime start);
  // Ends the ownership without an answer: by release, hold or abandon.
  Task<void> let_go(Settlement how);
  // Nothing renews the lease any more, and the key stays claimed until it is over.
  void give_up();

 private:
  GatewayThread& thread_;
  const Ownership owner_;
  const Millis lease_;
  const Time claimed_at_; // on the store's clock
  std::optional<LeaseKeeper> keeper_;
};

} // namespace oncekey
