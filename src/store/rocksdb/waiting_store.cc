#include "store/rocksdb/waiting_store.h"

#include <chrono>
#include <utility>

namespace oncekey {
namespace {

constexpr std::chrono::seconds kTryEvery{1};

} // namespace

WaitingStore::WaitingStore(const Secret& secret, Fault reason, Open open, Log& log)
    : secret_(secret), reason_(std::move(reason)), open_(std::move(open)), log_(log), thread_([this] {
        try_until_open();
      }) {}

WaitingStore::~WaitingStore() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_one();
  thread_.join();
}

void WaitingStore::try_until_open() {
  std::string told = reason_.message;
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, kTryEvery, [this] { return stopping_; })) {
    lock.unlock();
    Result<std::unique_ptr<Store>> store = open_();
    lock.lock();
    if (!store) {
      // The same reason once a second would fill the disk that is full already.
      if (store.fault().message != told) log_.error("store_not_opened", {{"reason", store.fault().message}});
      told = store.fault().message;
      continue;
    }
    store_ = *std::move(store);
    if (listener_) store_->announce_to(listener_);
    if (owners_) store_->owners_here(owners_);
    opened_.store(store_.get(), std::memory_order_release);
    log_.info("store_opened", {});
    return;
  }
}

void WaitingStore::announce_to(Listener listener) {
  const std::lock_guard lock(mutex_);
  if (Store* const store = opened()) return store->announce_to(std::move(listener));
  listener_ = std::move(listener);
}

void WaitingStore::owners_here(OwnersHere owners) {
  const std::lock_guard lock(mutex_);
  if (Store* const store = opened()) return store->owners_here(std::move(owners));
  owners_ = std::move(owners);
}

void WaitingStore::claim(ClaimRequest request, Done<ClaimAnswer> done) {
  if (Store* const store = opened()) return store->claim(std::move(request), std::move(done));
  done(reason_);
}

void WaitingStore::find(const RecordId& id, Interest interest, Done<std::optional<Found>> done) {
  if (Store* const store = opened()) return store->find(id, interest, std::move(done));
  done(reason_);
}

void WaitingStore::renew(const Ownership& owner, Millis lease, Done<FenceAnswer> done) {
  if (Store* const store = opened()) return store->renew(owner, lease, std::move(done));
  done(reason_);
}

void WaitingStore::complete(const Ownership& owner, StoredResponse response, Done<FenceAnswer> done) {
  if (Store* const store = opened()) return store->complete(owner, std::move(response), std::move(done));
  done(reason_);
}

void WaitingStore::release(const Ownership& owner, Done<FenceAnswer> done) {
  if (Store* const store = opened()) return store->release(owner, std::move(done));
  done(reason_);
}

void WaitingStore::hold(const Ownership& owner, Holder by, Done<FenceAnswer> done) {
  if (Store* const store = opened()) return store->hold(owner, by, std::move(done));
  done(reason_);
}

void WaitingStore::operate(const RecordId& id, OperatorAction action, StoredResponse response,
                           Done<OperatorAnswer> done) {
  if (Store* const store = opened()) return store->operate(id, action, std::move(response), std::move(done));
  done(reason_);
}

void WaitingStore::list(const ListRequest& request, Done<std::vector<Listed>> done) {
  if (Store* const store = opened()) return store->list(request, std::move(done));
  done(reason_);
}

std::uint64_t WaitingStore::least_fence_here() const {
  Store* const store = opened();
  return store == nullptr ? 0 : store->least_fence_here();
}

void WaitingStore::browse(const BrowseRequest& request, Done<BrowsePage> done) {
  if (Store* const store = opened()) return store->browse(request, std::move(done));
  done(reason_);
}

void WaitingStore::count_waiting(Done<WaitingKeys> done) {
  if (Store* const store = opened()) return store->count_waiting(std::move(done));
  done(reason_);
}

JobStore& WaitingStore::jobs() {
  if (Store* const store = opened()) return store->jobs();
  return no_jobs_;
}

Time WaitingStore::now() const {
  if (Store* const store = opened()) return store->now();
  return std::chrono::time_point_cast<Millis>(std::chrono::system_clock::now());
}

Status WaitingStore::healthy() const {
  if (Store* const store = opened()) return store->healthy();
  return reason_;
}

StoreStats WaitingStore::stats() const {
  if (Store* const store = opened()) return store->stats();
  return {};
}

} // namespace oncekey
