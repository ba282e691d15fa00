#include "gateway/admission.h"

namespace oncekey {
namespace {

// Of a client that names no account. Believes the same proxies as the X-Forwarded-* fields we send.
std::string_view address_of(const Exchange& exchange, const std::vector<std::string>& trusted_proxies) {
  const std::string_view peer = exchange.peer();
  if (std::find(trusted_proxies.begin(), trusted_proxies.end(), peer) == trusted_proxies.end()) return peer;
  std::string_view address = peer;
  // Each proxy appends the address of its peer: the last one is what the trusted proxy saw.
  for_each_item(exchange.request().headers, "X-Forwarded-For", [&](std::string_view item) { address = item; });
  return address;
}

void add_rate_headers(Exchange& exchange, const Rate& rate, const Taken& taken) {
  exchange.add_to_answer("RateLimit-Limit", fmt::format("{}", static_cast<std::uint64_t>(rate.burst)));
  exchange.add_to_answer("RateLimit-Remaining", fmt::format("{}", taken.remaining));
  const auto reset = std::chrono::ceil<std::chrono::seconds>(taken.full_after);
  exchange.add_to_answer("RateLimit-Reset", fmt::format("{}", reset.count()));
}

Task<bool> take_from_address_rate(GatewayShared& shared, Exchange& exchange) {
  Rate rate = shared.config().address_rate;
  // Without a word about it, what a second brings may come at once.
  if (rate.burst <= 0) rate.burst = std::max(1.0, rate.per_second);
  const std::string address = party_of_address(address_of(exchange, shared.config().trusted_proxies));
  const RateBucketId bucket = bucket_of_address(address, "every request", shared.hash);
  const Result<Taken> taken = co_await await_store<Taken>(
      exchange.loop(), [&](auto done) { shared.rates.take(bucket, rate, std::move(done)); });
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

// The bucket and the place that a request counts in.
RateBucketId bucket_for(GatewayShared& shared, const Exchange& exchange, const Route& route, const Requester& requester,
                        LimitOf of) {
  const std::string_view of_route = of == LimitOf::route ? std::string_view(route.name) : std::string_view{};
  // An account that was not proven can be named by any caller: such requests are counted by their address.
  const auto* const known = std::get_if<Principal>(&requester.principal());
  if (known != nullptr && believes_callers(route.policy)) {
    return bucket_of(*known, of_route, credentials_of(exchange.request().headers), shared.hash);
  }
  const std::string address = party_of_address(address_of(exchange, shared.config().trusted_proxies));
  return bucket_of_address(address, of_route, shared.hash);
}

Task<void> ask_limits_of(GatewayThread& thread, Exchange& exchange, const Route& route, const Requester& requester,
                         Limited& out) {
  GatewayShared& shared = thread.shared;
  const Limit limit = limit_of(shared.config().rates, route.policy.rates, credentials_of(exchange.request().headers));
  if (limit.max_in_flight > 0) {
    auto place =
        shared.accounts.enter(bucket_for(shared, exchange, route, requester, limit.in_flight_of), limit.max_in_flight);
    if (!place) {
      out.refusal = Refusal{
          RefusalCode::too_many_in_flight, {}, std::chrono::seconds(1), {}, in_flight_reason(limit.in_flight_of)};
      co_return;
    }
    out.place.emplace(*std::move(place));
  }
  if (!limit.rate.limits()) co_return;
  const RateBucketId id = bucket_for(shared, exchange, route, requester, limit.rate_of);
  const Result<Taken> taken =
      co_await await_store<Taken>(thread.loop, [&](auto done) { shared.rates.take(id, limit.rate, std::move(done)); });
  if (!taken) {
    // It fails open: it is there against too much, and idempotency is there against twice.
    shared.metrics.limiter_faults.Increment();
    shared.log.seldom(LogLevel::warning, "limiter_fault", route.name,
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

Task<bool> within_address_rate(GatewayShared& shared, Exchange& exchange) {
  // Most gateways limit nothing, and then it should cost nothing.
  if (!shared.config().address_rate.limits()) return true;
  return take_from_address_rate(shared, exchange);
}

Task<void> ask_limits(GatewayThread& thread, Exchange& exchange, const Route& route, const Requester& requester,
                      Limited& out) {
  // Most gateways limit nothing, and then it should cost nothing.
  if (!thread.shared.config().rates.any() && !route.policy.rates.any()) return std::monostate{};
  return ask_limits_of(thread, exchange, route, requester, out);
}

} // namespace oncekey
