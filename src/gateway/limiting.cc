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

} // namespace

Task<void> Gateway::limit(Exchange& exchange, const Route& route, Limited& out) {
  // Most gateways limit nothing, and then it should cost nothing.
  if (!shared_.config.rates.any() && !route.policy.rates.any()) return std::monostate{};
  return ask_the_limits(exchange, route, out);
}

Task<void> Gateway::ask_the_limits(Exchange& exchange, const Route& route, Limited& out) {
  const RateLimits& general = shared_.config.rates;
  const Policy& policy = route.policy;
  const Headers& headers = exchange.request().headers;
  const Credentials credentials = credentials_of(headers);
  const Limit limit = limit_of(general, policy.rates, credentials);
  if (!limit.any()) co_return;

  const auto principal = find_principal(policy, headers);
  const auto bucket = [&](LimitOf of) {
    const std::string_view of_route = of == LimitOf::route ? std::string_view(route.name) : std::string_view{};
    if (const auto* known = std::get_if<Principal>(&principal)) {
      return bucket_of(*known, of_route, credentials, shared_.hash);
    }
    return bucket_of_address(address_of(exchange, shared_.config.trusted_proxies), of_route, shared_.hash);
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

std::optional<Refusal> Gateway::refuse_new_work(KeyedRequest& request) {
  request.work.give_up();
  if (request.limited.refusal) {
    Refusal refusal = *request.limited.refusal;
    refusal.key = request.admitted.key;
    return refusal;
  }
  const Limits& limits = shared_.config.limits;
  const auto overloaded = [&] {
    return Refusal{RefusalCode::overloaded, {}, std::chrono::seconds(1), request.admitted.key};
  };
  // Its own body does not count: one that is let in at all must have a chance.
  const std::uint64_t held_by_others = shared_.buffered_bytes.load(std::memory_order_relaxed) - request.buffered.held();
  if (held_by_others > limits.max_buffered_bytes - limits.max_buffered_bytes / kReservedShare) return overloaded();
  if (shared_.upstream_open.load(std::memory_order_relaxed) >= limits.max_upstream_connections) return overloaded();
  auto place = shared_.work.enter(limits.max_in_flight > 0 ? limits.max_in_flight : limits.max_upstream_connections);
  if (!place) return overloaded();
  const MonotonicTime now = std::chrono::steady_clock::now();
  auto pass = shared_.breaker.ask(now);
  if (!pass) {
    shared_.metrics.breaker_refusals.Increment();
    return Refusal{RefusalCode::upstream_unreachable, "It was not tried again for this request.",
                   shared_.breaker.retry_after(now), request.admitted.key};
  }
  request.work.place.emplace(*std::move(place));
  request.work.pass.emplace(*std::move(pass));
  return std::nullopt;
}

void Gateway::tell_breaker(std::optional<UpstreamBreaker::Pass>& pass, CallError error, std::string_view reason) {
  if (!pass) return;
  switch (error) {
    case CallError::none:
    case CallError::broken:
    case CallError::timed_out:
      if (pass->reached()) shared_.log.info("upstream_reached_again", {});
      break;
    case CallError::not_sent:
      if (pass->not_reached(std::chrono::steady_clock::now())) {
        shared_.log.warning("upstream_left_alone", {{"reason", reason}});
      }
      break;
    case CallError::full: // says nothing of the upstream
      break;
  }
}

} // namespace oncekey
