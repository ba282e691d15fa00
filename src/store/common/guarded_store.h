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

#include "base/backoff.h"
#include "base/log.h"
#include "store/common/breaker.h"
#include "store/common/later.h"
#include "store/common/own_claims.h"
#include "store/common/replay_cache.h"

#include "core/job_store.h"
#include "core/store.h"

#include <array>
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
  JobStore& jobs() override { return jobs_; }
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
  struct StageCall;
  using Clock = std::chrono::steady_clock;

  class Jobs final : public JobStore {
   public:
    explicit Jobs(GuardedStore& store) : store_(store) {}
    void stage(StageRequest request, Done<StageAnswer> done) override;
    void take(const TakeRequest& request, Done<std::vector<TakenJob>> done) override;
    void end_attempt(const Ownership& owner, AttemptEnd end, Done<FenceAnswer> done) override;
    void find(const RecordId& id, Done<std::optional<FoundJob>> done) override;
    void operate(const RecordId& id, const std::string& route, JobAction action, Done<JobAnswer> done) override;
    void list(const JobListRequest& request, Done<JobPage> done) override;
    void count(Done<std::vector<JobCount>> done) override;

   private:
    GuardedStore& store_;
  };

  Breaker& breaker_of(const RecordId& id) { return breakers_[server_->server_of(id) % breakers_.size()]; }
  // Asks the server of this breaker for an id of its own until it answers.
  void probe(Breaker& breaker, const std::shared_ptr<Backoff>& pauses);
  std::optional<RecordId> absent_id(const Breaker& breaker);
  Status durable_enough() const;
  void send(const std::shared_ptr<ClaimCall>& call);
  void claim_answered(const std::shared_ptr<ClaimCall>& call, Result<ClaimAnswer> answer);
  void give_up(const std::shared_ptr<ClaimCall>& call, const Fault& fault);
  void release_if_ours(const std::shared_ptr<ClaimCall>& call);
  void send(const std::shared_ptr<FenceCall>& call);
  void fence_answered(const std::shared_ptr<FenceCall>& call, Result<FenceAnswer> answer);
  void send(const std::shared_ptr<StageCall>& call);
  void finish(const FenceCall& call, Result<FenceAnswer> answer);
  std::function<void(Done<FenceAnswer>)> read_record(const Ownership& owner,
                                                     std::function<bool(const std::optional<Found>&)> made_this);
  // The result as it is, counted by the breaker of the record's server.
  template <class T>
  Done<T> counted(const RecordId& id, Done<T> done);
  template <class T>
  void count(const RecordId& id, const Result<T>& result);

  const GuardOptions options_;
  std::array<Breaker, kStoreServersMax> breakers_; // by Store::server_of
  ReplayCache replays_{kReplayCacheBytes};
  OwnClaims own_claims_;
  OwnersHere owners_here_;
  const std::uint64_t process_; // the random half of the tokens made here
  std::atomic<std::uint64_t> claims_{0};
  Jobs jobs_{*this};
  Later later_;
  // Destroyed first: its last callbacks need what is above.
  std::unique_ptr<Store> server_;
};

} // namespace oncekey
