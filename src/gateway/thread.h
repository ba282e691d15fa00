// thread: what the requests of one event loop use. Everything here is touched by that loop's thread alone, but for what
// it refers to.
#pragma once

#include "gateway/await_store.h"
#include "gateway/shared.h"
#include "gateway/trust.h"
#include "gateway/upstreams.h"
#include "net/loop.h"

#include <optional>
#include <utility>

namespace oncekey {

struct GatewayThread {
  // `upstream_pools` are those of this thread.
  GatewayThread(GatewayShared& all, UpstreamPools& upstream_pools, Loop& event_loop)
      : shared(all), pools(upstream_pools), loop(event_loop), wakeups(event_loop), recent_accounts(all.shares) {}
  GatewayThread(const GatewayThread&) = delete;
  GatewayThread& operator=(const GatewayThread&) = delete;

  UpstreamPool& pool_of(const Upstream& upstream) { return *pools[upstream.index]; }
  // The record as it is. co_await gives a Result<std::optional<Found>>.
  auto find(const RecordId& id, Interest interest) {
    return await_store<std::optional<Found>>(
        wakeups, [this, id, interest](auto done) { shared.store.find(id, interest, std::move(done)); });
  }

  GatewayShared& shared;
  UpstreamPools& pools;
  Loop& loop;
  Wakeups wakeups;
  RecentAccounts recent_accounts;
  VerifiedTokens verified_tokens;
};

} // namespace oncekey
