// shared: what all threads of a gateway have in common.
#pragma once

#include "base/crypto.h"
#include "base/log.h"
#include "config/config.h"
#include "gateway/local_rates.h"
#include "gateway/metrics.h"
#include "gateway/places.h"
#include "gateway/storms.h"
#include "gateway/upstream_breaker.h"
#include "gateway/waiters.h"
#include "http/forwarding.h"

#include <oncekey/store.h>

#include <atomic>
#include <cstdint>
#include <memory>

namespace oncekey {

struct GatewayShared {
  GatewayShared(const Config& configuration, Store& record_store, Log& logger);

  const Config& config;
  Store& store;
  Log& log;
  KeyedHash hash; // keyed with the store's secret
  Metrics metrics;
  // Shared with the store, which may have news to tell until it ends.
  const std::shared_ptr<Waiters> waiters_owner = std::make_shared<Waiters>();
  Waiters& waiters = *waiters_owner;
  ProxyIdentity self;
  std::string published; // the document at /.well-known/idempotency; empty for none
  std::atomic<bool> draining{false};
  std::atomic<std::uint64_t> buffered_bytes{0};
  std::atomic<std::uint32_t> upstream_open{0};
  std::atomic<std::uint32_t> detached{0}; // operations that go on without their client
  LocalRates local_rates;
  RateKeeper& rates; // the store's, if it has any
  AccountPlaces accounts;
  Places work; // keyed operations under way
  UpstreamBreaker breaker;
  Storms storms;
  bool has_status_urls; // some route allows respond_async
};

// Bytes of bodies held in memory, counted against limits.max_buffered_bytes for as long as this lives.
class BufferedBytes {
 public:
  explicit BufferedBytes(GatewayShared& shared) : shared_(shared) {}
  ~BufferedBytes() { shared_.buffered_bytes.fetch_sub(held_, std::memory_order_relaxed); }
  BufferedBytes(const BufferedBytes&) = delete;
  BufferedBytes& operator=(const BufferedBytes&) = delete;

  // False when the limit would be passed; nothing is counted then.
  bool try_hold(std::uint64_t bytes);
  // For an answer that exists already. One that is larger than the limit has its turn when nobody else holds anything.
  bool try_hold_answer(std::uint64_t bytes);
  // Counts without asking: for an answer to something that was executed already, which cannot be refused any more.
  void hold(std::uint64_t bytes);
  std::uint64_t held() const { return held_; }

 private:
  GatewayShared& shared_;
  std::uint64_t held_ = 0;
};

} // namespace oncekey
