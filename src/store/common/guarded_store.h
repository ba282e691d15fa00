// GuardedStore: what stands between the gateway and a server on the other side of a network.
//
// A call over a network has a third ending besides yes and no: it may have happened. The store below makes each call
// once and says which of the three it was (a fault of kind `timeout` is the third); everything that follows from it is
// done here, the same for every kind of server:
//
//   claim      is sent again with the same token. A claim that finds its own token on a record in progress is its
//   owner.
//              A claim that stays unknown is answered as a fault, so that the request is not executed; when the store
//              is back, the record is released if it has this claim's token.
//   complete   is sent again for some seconds, since the work is done and its answer would be lost. If the record then
//              says `lost`, it is read: with our fence and our response it was we who completed it.
//   release, hold   in the same way, for a shorter time, since a client is waiting for a refusal.
//   renew      is not repeated: the next renewal is.
//
// An owner of this process never loses its record to a claim of this process (Store::owners_here): the claim is sent
// with Abandoned::leave while such an owner is at work, and renews a lease that it finds over.
//
// A breaker refuses claims at once while the server does not answer; a look at it now and then, from here and not at a
// client's cost, finds out when it does. Owners who want to write what they have done are let through: refusing them
// would turn done work into unknown work. Completed records that were seen lately are
// answered from memory, whatever the server does.
#pragma once

#include "base/log.h"
#include "store/common/backoff.h"
#include "store/common/breaker.h"
#include "store/common/later.h"
#include "store/common/own_claims.h"
#include "store/common/replay_cache.h"

#include "core/store.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

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

class GuardedStore final : public Store {
 public:
  GuardedStore(std::unique_ptr<Store> server, GuardOptions options);
  ~GuardedStore() override;

  void claim(ClaimRequest request, Done<ClaimAnswer> done) override;
  void find(const RecordId& id, Interest interest, Done<std::optional<Found>> done) override;
  void renew(const Ownership& owner, Millis lease, Done<FenceAnswer> done) override;
  void complete(const Ownership& owner, StoredResponse response, Done<FenceAnswer> done) override;
  void release(const Ownership& owner, Done<FenceAnswer> done) override;
  void hold(const Ownership& owner, Holder by, Done<FenceAnswer> done) override;
  void take(const TakeRequest& request, Done<std::vector<TakenJob>> done) override;
  void end_attempt(const Ownership& owner, AttemptEnd end, Done<FenceAnswer> done) override;
  void operate(const RecordId& id, OperatorAction action, StoredResponse response, Done<OperatorAnswer> done) override;
  void list(const ListRequest& request, Done<std::vector<Listed>> done) override;
  void browse(const BrowseRequest& request, Done<BrowsePage> done) override;
  void count_waiting(Done<WaitingKeys> done) override;
  void announce_to(Listener listener) override { server_->announce_to(std::move(listener)); }
  void owners_here(OwnersHere owners) override { owners_here_ = std::move(owners); }
  Time now() const override { return server_->now(); }
  const std::array<std::uint8_t, 32>& secret() const override { return server_->secret(); }
  Durability durability() const override { return server_->durability(); }
  Status healthy() const override;
  StoreStats stats() const override { return server_->stats(); }
  RateKeeper* rates() override { return server_->rates(); }

 private:
  struct ClaimCall;
  struct FenceCall;
  using Clock = std::chrono::steady_clock;

  Fault left_alone() const;
  void look_whether_it_is_back(const std::shared_ptr<Backoff>& pauses);
  Status may_claim();
  void send(const std::shared_ptr<ClaimCall>& call);
  void claim_answered(const std::shared_ptr<ClaimCall>& call, Result<ClaimAnswer> answer);
  void give_up(const std::shared_ptr<ClaimCall>& call, const Fault& fault);
  void release_if_ours(const std::shared_ptr<ClaimCall>& call);
  void send(const std::shared_ptr<FenceCall>& call);
  void fence_answered(const std::shared_ptr<FenceCall>& call, Result<FenceAnswer> answer);
  void finish(const FenceCall& call, Result<FenceAnswer> answer);
  void read_back(const std::shared_ptr<FenceCall>& call);
  // The result as it is, counted by the breaker.
  template <class T>
  Done<T> counted(Done<T> done);
  template <class T>
  void count(const Result<T>& result);

  const GuardOptions options_;
  Breaker breaker_;
  ReplayCache replays_{kReplayCacheBytes};
  OwnClaims own_claims_;
  OwnersHere owners_here_;
  const std::uint64_t process_; // the random half of the tokens made here
  std::atomic<std::uint64_t> claims_{0};
  Later later_;
  // Destroyed first: its last callbacks need what is above.
  std::unique_ptr<Store> server_;
};

} // namespace oncekey
