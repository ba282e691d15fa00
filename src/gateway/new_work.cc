#include "gateway/new_work.h"

namespace oncekey {
namespace {

// This part of the memory for bodies is kept for requests that end something: replays, and owners with an answer.
constexpr std::uint64_t kReservedShare = 8;

// Room comes back when records expire or an operator makes some: not within a second.
constexpr std::chrono::seconds kRetryWhenFull{10};

// 0 where it is not known how large the store may become.
std::uint64_t growth_per_hour(const GatewayShared& shared) {
  return static_cast<std::uint64_t>(static_cast<double>(shared.room.capacity()) *
                                    shared.config().limits.store_share_per_hour);
}

std::optional<Refusal> refuse_growth(const GatewayShared& shared, const Sharer& sharer, MonotonicTime now) {
  if (!shared.room.for_claim(StoreRoom::kEndingBytes)) return Refusal{RefusalCode::store_full, {}, kRetryWhenFull, {}};
  if (!shared.room.half_full()) return std::nullopt;
  const std::uint64_t per_hour = growth_per_hour(shared);
  for (Party* const party : {sharer.address(), sharer.account()}) {
    if (party == nullptr || !Shares::level_is_over(*party, per_hour, now)) continue;
    return Refusal{
        RefusalCode::over_share,
        fmt::format("This {} has added its share to the store of keys; the share grows back within the hour.",
                    party == sharer.address() ? "address" : "account"),
        kRetryWhenFull,
        {}};
  }
  return std::nullopt;
}

} // namespace

std::optional<Refusal> NewWork::begin(GatewayShared& shared, const Route& route, const Sharer& sharer,
                                      const BufferedBytes& buffered, MonotonicTime now) {
  give_up();
  const Limits& limits = shared.config().limits;
  const Refusal overloaded{RefusalCode::overloaded, {}, std::chrono::seconds(1), {}};
  // Its own body does not count: one that is let in at all must have a chance.
  const std::uint64_t held_by_others = shared.shares.in_use(Resource::buffered_bytes) - buffered.held();
  if (held_by_others > limits.max_buffered_bytes - limits.max_buffered_bytes / kReservedShare) return overloaded;
  if (shared.upstream_open.load(std::memory_order_relaxed) >= limits.max_upstream_connections) return overloaded;
  Holding place(shared.shares, Resource::places, sharer.address(), sharer.account());
  if (const Grant grant = place.try_add(1); grant != Grant::given) return refusal_of(grant, Resource::places);
  std::optional<Places::Place> of_all =
      limits.max_in_flight > 0 ? shared.work.enter(limits.max_in_flight) : std::nullopt;
  if (limits.max_in_flight > 0 && !of_all) return overloaded;
  if (auto refusal = refuse_growth(shared, sharer, now)) return refusal;
  Upstream& upstream = route.state->upstream;
  auto pass = upstream.breaker.ask(now);
  if (!pass) {
    upstream.metrics.breaker_refusals.Increment();
    return Refusal{RefusalCode::upstream_unreachable,
                   "It was not tried again for this request.",
                   upstream.breaker.retry_after(now),
                   {}};
  }
  place_.emplace(std::move(place));
  if (of_all) of_all_.emplace(*std::move(of_all));
  ending_.emplace(shared.room);
  pass_.emplace(*std::move(pass));
  return std::nullopt;
}

void NewWork::give_up() {
  place_.reset();
  of_all_.reset();
  ending_.reset();
  pass_.reset();
}

void NewWork::sent(GatewayShared& shared, const Upstream& upstream, CallError error, std::string_view why) {
  if (pass_) tell_breaker(shared.log, upstream, *pass_, error, why);
}

void count_growth(GatewayShared& shared, const Sharer& sharer, std::uint64_t bytes) {
  shared.room.took(bytes);
  const std::uint64_t per_hour = growth_per_hour(shared);
  if (per_hour == 0) return;
  const MonotonicTime now = std::chrono::steady_clock::now();
  if (sharer.address() != nullptr) Shares::add_to_level(*sharer.address(), bytes, per_hour, now);
  if (sharer.account() != nullptr) Shares::add_to_level(*sharer.account(), bytes, per_hour, now);
}

void tell_breaker(Log& log, const Upstream& upstream, UpstreamBreaker::Pass& pass, CallError error,
                  std::string_view why) {
  switch (error) {
    case CallError::none:
    case CallError::broken:
    case CallError::timed_out:
    case CallError::unusable:
      if (pass.reached()) log.info("upstream_reached_again", {{"upstream", upstream.name}});
      break;
    case CallError::not_sent:
      if (pass.not_reached(std::chrono::steady_clock::now())) {
        log.warning("upstream_left_alone", {{"upstream", upstream.name}, {"reason", why}});
      }
      break;
    case CallError::full: // says nothing of the upstream
      break;
  }
}

} // namespace oncekey
