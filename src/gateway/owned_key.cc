#include "gateway/owned_key.h"

namespace oncekey {

Task<bool> OwnedKey::renew() {
  const Result<FenceAnswer> renewed = co_await await_store<FenceAnswer>(
      thread_.loop, [&](auto done) { thread_.shared.store.renew(owner_, lease_, std::move(done)); });
  const bool ours = renewed.ok() && *renewed == FenceAnswer::done;
  if (ours && keeper_) keeper_->renewed();
  if (!ours) {
    thread_.shared.metrics.lost_leases.Increment();
    // If it is still ours after all, it need not stay claimed.
    co_await let_go(Settlement::release);
  }
  co_return ours;
}

Task<Result<FenceAnswer>> OwnedKey::complete(StoredResponse response) {
  const MonotonicTime start = std::chrono::steady_clock::now();
  Result<FenceAnswer> written = co_await write(response);
  note_written(written, start);
  co_return written;
}

void OwnedKey::note_written(const Result<FenceAnswer>& written, MonotonicTime start) {
  GatewayShared& shared = thread_.shared;
  shared.metrics.complete_seconds.Observe(seconds_since(start));
  if (!written) {
    shared.metrics.store_faults.Increment();
    shared.log.error("record_not_written", {{"key", short_hash(owner_.id)}, {"reason", written.fault().message}});
  } else if (*written == FenceAnswer::done) {
    shared.waiters.notify(owner_.id);
  }
}

Task<void> OwnedKey::let_go(Settlement how) {
  if (how != Settlement::release && how != Settlement::hold) {
    give_up();
    co_return;
  }
  keeper_.reset();
  Store& store = thread_.shared.store;
  const Result<FenceAnswer> written = co_await await_store<FenceAnswer>(thread_.loop, [&](auto done) {
    if (how == Settlement::hold) return store.hold(owner_, Holder::owner, std::move(done));
    store.release(owner_, std::move(done));
  });
  if (!written) give_up();
  thread_.shared.waiters.notify(owner_.id);
}

void OwnedKey::give_up() {
  keeper_.reset();
  thread_.shared.given_up.add(owner_, lease_, std::chrono::steady_clock::now());
}

} // namespace oncekey
