// Who is let in: the limits of accounts, before anything else is looked at, and what it takes to begin something new.
#include "core/limit.h"
#include "gateway/gateway.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

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

// Of a client that names no account. Believes the same proxies as the X-Forwarded-* fields we send.
std::string_view address_of(const Exchange& exchange, const std::vector<std::string>& trusted_proxies) {
  const std::string_view peer = exchange.peer();
  if (std::find(trusted_proxies.begin(), trusted_proxies.end(), peer) == trusted_proxies.end()) return peer;
  std::string_view address = peer;
  const Headers& headers = exchange.request().headers;
  for (std::size_t i = 0; i < headers.size(); ++i) {
    const Field field = headers[i];
    if (!equal_ignoring_case(field.name, "X-Forwarded-For")) continue;
    // Each proxy appends whom it heard from: the last one is what ours saw.
    for_each_list_item(field.value, [&](std::string_view item) { address = item; });
  }
  return address;
}

void add_rate_headers(Exchange& exchange, const Rate& rate, const Taken& taken) {
  exchange.add_to_answer("RateLimit-Limit", fmt::format("{}", static_cast<std::uint64_t>(rate.burst)));
  exchange.add_to_answer("RateLimit-Remaining", fmt::format("{}", taken.remaining));
  const auto reset = std::chrono::ceil<std::chrono::seconds>(taken.full_after);
  exchange.add_to_answer("RateLimit-Reset", fmt::format("{}", reset.count()));
}

Task<bool> take_from_address_rate(GatewayShared& shared, Wakeups& wakeups, Exchange& exchange) {
  Rate rate = shared.config().address_rate;
  // Without a word about it, what a second brings may come at once.
  if (rate.burst <= 0) rate.burst = std::max(1.0, rate.per_second);
  const std::string address = party_of_address(address_of(exchange, shared.config().trusted_proxies));
  const RateBucketId bucket = bucket_of_address(address, "every request", shared.hash);
  const Result<Taken> taken =
      co_await await_store<Taken>(wakeups, [&](auto done) { shared.rates.take(bucket, rate, std::move(done)); });
  if (!taken) {
    shared.metrics.limiter_faults.Increment();
    co_return true;
  }
  if (taken->allowed) co_return true;
  shared.metrics.no_route().count(to_string(RefusalCode::rate_limited), exchange);
  exchange.add_to_answer("Retry-After", fmt::format("{}", whole_wait(taken->retry_after).count()));
  co_await exchange.send_problem(429, "this address sends requests faster than it may; nothing was executed");
  co_return false;
}

} // namespace

Sharer sharer_of(GatewayShared& shared, const Exchange& exchange) {
  Sharer sharer(exchange.address());
  // The party of a connection is missing for trusted proxies alone: their clients are counted one by one.
  if (exchange.address() == nullptr) {
    const std::string_view client = address_of(exchange, shared.config().trusted_proxies);
    if (client != exchange.peer()) sharer.is_behind_proxy(shared.shares, client);
  }
  return sharer;
}

Task<bool> within_address_rate(GatewayShared& shared, Wakeups& wakeups, Exchange& exchange) {
  // Most gateways limit nothing, and then it should cost nothing.
  if (!shared.config().address_rate.limits()) return true;
  return take_from_address_rate(shared, wakeups, exchange);
}

Task<void> Gateway::limit(Exchange& exchange, const Route& route, const Caller& caller, Limited& out) {
  // Most gateways limit nothing, and then it should cost nothing.
  if (!shared_.config().rates.any() && !route.policy.rates.any()) return std::monostate{};
  return ask_the_limits(exchange, route, caller, out);
}

Task<void> Gateway::ask_the_limits(Exchange& exchange, const Route& route, const Caller& caller, Limited& out) {
  const RateLimits& general = shared_.config().rates;
  const Policy& policy = route.policy;
  const Headers& headers = exchange.request().headers;
  const Credentials credentials = credentials_of(headers);
  const Limit limit = limit_of(general, policy.rates, credentials);
  if (!limit.any()) co_return;

  const auto principal = find_principal(policy, headers, caller);
  // An account that was not proven is another's for whoever names it: such requests are counted by their address.
  const bool proven = believes_callers(policy);
  const auto bucket = [&](LimitOf of) {
    const std::string_view of_route = of == LimitOf::route ? std::string_view(route.name) : std::string_view{};
    if (const auto* known = std::get_if<Principal>(&principal); known != nullptr && proven) {
      return bucket_of(*known, of_route, credentials, shared_.hash);
    }
    const std::string address = party_of_address(address_of(exchange, shared_.config().trusted_proxies));
    return bucket_of_address(address, of_route, shared_.hash);
  };
  if (limit.max_in_flight > 0) {
    auto place = shared_.accounts.enter(bucket(limit.in_flight_of), limit.max_in_flight);
    if (!place) {
      out.refusal = Refusal{
          RefusalCode::too_many_in_flight, {}, std::chrono::seconds(1), {}, in_flight_reason(limit.in_flight_of)};
      co_return;
    }
    out.place.emplace(*std::move(place));
  }
  if (!limit.rate.limits()) co_return;
  const RateBucketId id = bucket(limit.rate_of);
  const Result<Taken> taken =
      co_await await_store<Taken>(wakeups_, [&](auto done) { shared_.rates.take(id, limit.rate, std::move(done)); });
  if (!taken) {
    // It fails open: it is there against too much, and idempotency is there against twice.
    shared_.metrics.limiter_faults.Increment();
    shared_.log.seldom(LogLevel::warning, "limiter_fault", route.name,
                       {{"route", route.name}, {"reason", taken.fault().message}});
    co_return;
  }
  add_rate_headers(exchange, limit.rate, *taken);
  if (taken->allowed) {
    out.bucket = id;
    out.rate = limit.rate;
  } else {
    out.refusal =
        Refusal{RefusalCode::rate_limited, {}, whole_wait(taken->retry_after), {}, rate_reason(limit.rate_of)};
  }
}

std::optional<Refusal> Gateway::refuse_new_work(KeyedRequest& request, MonotonicTime now) {
  request.work.give_up();
  if (request.limited.refusal) {
    Refusal refusal = *request.limited.refusal;
    refusal.key = request.admitted.key;
    return refusal;
  }
  const Limits& limits = shared_.config().limits;
  const auto overloaded = [&] {
    return Refusal{RefusalCode::overloaded, {}, std::chrono::seconds(1), request.admitted.key};
  };
  // Its own body does not count: one that is let in at all must have a chance.
  const std::uint64_t held_by_others = shared_.shares.in_use(Resource::buffered_bytes) - request.buffered.held();
  if (held_by_others > limits.max_buffered_bytes - limits.max_buffered_bytes / kReservedShare) return overloaded();
  if (shared_.upstream_open.load(std::memory_order_relaxed) >= limits.max_upstream_connections) return overloaded();
  Holding place(shared_.shares, Resource::places, request.sharer.address(), request.sharer.account());
  if (const Grant grant = place.try_add(1); grant != Grant::given) {
    return refusal_of(grant, Resource::places, request.admitted.key);
  }
  std::optional<Places::Place> of_all =
      limits.max_in_flight > 0 ? shared_.work.enter(limits.max_in_flight) : std::nullopt;
  if (limits.max_in_flight > 0 && !of_all) return overloaded();
  if (auto refusal = refuse_growth(request, now)) return refusal;
  Upstream& upstream = request.route.state->upstream;
  auto pass = upstream.breaker.ask(now);
  if (!pass) {
    upstream.metrics.breaker_refusals.Increment();
    return Refusal{RefusalCode::upstream_unreachable, "It was not tried again for this request.",
                   upstream.breaker.retry_after(now), request.admitted.key};
  }
  request.work.place.emplace(std::move(place));
  if (of_all) request.work.of_all.emplace(*std::move(of_all));
  request.work.ending.emplace(shared_.room);
  request.work.pass.emplace(*std::move(pass));
  return std::nullopt;
}

std::optional<Refusal> Gateway::refuse_growth(const KeyedRequest& request, MonotonicTime now) {
  if (!shared_.room.for_claim(StoreRoom::kEndingBytes)) {
    return Refusal{RefusalCode::store_full, {}, kRetryWhenFull, request.admitted.key};
  }
  if (!shared_.room.half_full()) return std::nullopt;
  const std::uint64_t per_hour = growth_per_hour(shared_);
  for (Party* const party : {request.sharer.address(), request.sharer.account()}) {
    if (party == nullptr || !Shares::level_is_over(*party, per_hour, now)) continue;
    return Refusal{
        RefusalCode::over_share,
        fmt::format("This {} has added its share to the store of keys; the share grows back within the hour.",
                    party == request.sharer.address() ? "address" : "account"),
        kRetryWhenFull, request.admitted.key};
  }
  return std::nullopt;
}

void Gateway::count_growth(const Sharer& sharer, std::uint64_t bytes) {
  shared_.room.took(bytes);
  const std::uint64_t per_hour = growth_per_hour(shared_);
  if (per_hour == 0) return;
  const MonotonicTime now = std::chrono::steady_clock::now();
  if (sharer.address() != nullptr) Shares::add_to_level(*sharer.address(), bytes, per_hour, now);
  if (sharer.account() != nullptr) Shares::add_to_level(*sharer.account(), bytes, per_hour, now);
}

void Gateway::tell_breaker(const Upstream& upstream, std::optional<UpstreamBreaker::Pass>& pass, CallError error,
                           std::string_view reason) {
  if (!pass) return;
  switch (error) {
    case CallError::none:
    case CallError::broken:
    case CallError::timed_out:
    case CallError::unusable:
      if (pass->reached()) shared_.log.info("upstream_reached_again", {{"upstream", upstream.name}});
      break;
    case CallError::not_sent:
      if (pass->not_reached(std::chrono::steady_clock::now())) {
        shared_.log.warning("upstream_left_alone", {{"upstream", upstream.name}, {"reason", reason}});
      }
      break;
    case CallError::full: // says nothing of the upstream
      break;
  }
}

} // namespace oncekey
