// WaitingStore: stands in for an embedded store whose disk was too full to open it.
//
// A full disk must not keep the gateway down: requests without a key need no store. So the gateway starts with this,
// which refuses every call with the reason, tries to open the real store once a second, and passes every call on to it
// from then on. Nothing is executed meanwhile, and nothing is answered from a store that was not read.
#pragma once

#include "base/crypto.h"
#include "base/log.h"

#include "core/job_store.h"
#include "core/store.h"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace oncekey {

class WaitingStore final : public Store {
 public:
  using Open = std::function<Result<std::unique_ptr<Store>>()>;

  // `secret` is that of the store, which can be read while the rest cannot be opened.
  WaitingStore(const Secret& secret, Fault reason, Open open, Log& log);
  ~WaitingStore() override;

  void claim(ClaimRequest request, Done<ClaimAnswer> done) override;
  void find(const RecordId& id, Interest interest, Done<std::optional<Found>> done) override;
  void renew(const Ownership& owner, Millis lease, Done<FenceAnswer> done) override;
  void complete(const Ownership& owner, StoredResponse response, Done<FenceAnswer> done) override;
  void release(const Ownership& owner, Done<FenceAnswer> done) override;
  void hold(const Ownership& owner, Holder by, Done<FenceAnswer> done) override;
  JobStore& jobs() override;
  void operate(const RecordId& id, OperatorAction action, StoredResponse response, Done<OperatorAnswer> done) override;
  void list(const ListRequest& request, Done<std::vector<Listed>> done) override;
  void browse(const BrowseRequest& request, Done<BrowsePage> done) override;
  void count_waiting(Done<WaitingKeys> done) override;
  void announce_to(Listener listener) override;
  void owners_here(OwnersHere owners) override;
  std::uint64_t least_fence_here() const override;
  Time now() const override;
  const std::array<std::uint8_t, 32>& secret() const override { return secret_; }
  Durability durability() const override { return Durability::power; }
  Status healthy() const override;
  StoreStats stats() const override;

 private:
  // Refuses every call with the reason.
  class NoJobs final : public JobStore {
   public:
    explicit NoJobs(const Fault& reason) : reason_(reason) {}
    void stage(StageRequest, Done<StageAnswer> done) override { done(reason_); }
    void take(const TakeRequest&, Done<std::vector<TakenJob>> done) override { done(reason_); }
    void end_attempt(const Ownership&, AttemptEnd, Done<FenceAnswer> done) override { done(reason_); }
    void find(const RecordId&, Done<std::optional<FoundJob>> done) override { done(reason_); }
    void operate(const RecordId&, const std::string&, JobAction, Done<JobAnswer> done) override { done(reason_); }
    void list(const JobListRequest&, Done<JobPage> done) override { done(reason_); }
    void count(Done<std::vector<JobCount>> done) override { done(reason_); }

   private:
    const Fault& reason_;
  };

  Store* opened() const { return opened_.load(std::memory_order_acquire); }
  void try_until_open();

  const Secret secret_;
  const Fault reason_;
  const Open open_;
  Log& log_;
  std::unique_ptr<Store> store_;
  std::atomic<Store*> opened_ = nullptr;
  NoJobs no_jobs_{reason_};

  std::mutex mutex_; // guards what follows
  std::condition_variable stop_;
  bool stopping_ = false;
  Listener listener_;
  OwnersHere owners_;
  std::thread thread_;
};

} // namespace oncekey
