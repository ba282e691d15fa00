#include "delivery/http_carrier.h"

#include "core/judge.h"
#include "http/fetch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace oncekey {
namespace {

// The receiver's answer is read only to use the connection again.
constexpr AnswerLimit kAnswerLimit{64u << 10, AnswerLimit::Longer::is_cut};

UpstreamOptions options_of(const Endpoint& endpoint, const Config& config) {
  UpstreamOptions options;
  options.server = endpoint.url;
  options.ca_file = endpoint.ca_file;
  options.ca_setting = fmt::format("\"{}\": ca", endpoint.name);
  options.connect_timeout = std::min(config.timeouts.connect, endpoint.timeout);
  options.idle_timeout = config.timeouts.upstream_idle;
  options.max_header_bytes = config.limits.max_header_bytes;
  options.max_connections = endpoint.concurrency;
  return options;
}

UpstreamRequest request_of(const Endpoint& endpoint, const HeldJob& held) {
  UpstreamRequest request;
  request.method = held.message.method;
  request.target = endpoint.url.target;
  request.headers.add("Host", endpoint.url.authority);
  const Headers& headers = held.message.headers;
  for (std::size_t at = 0; at < headers.size(); ++at) {
    const Field field = headers[at];
    // What the receiver asks of us is not for the sender to say.
    if (!endpoint.authorization.empty() && equal_ignoring_case(field.name, "Authorization")) continue;
    request.headers.add(field.name, field.value);
  }
  request.headers.add("Idempotency-Key", held.job.key);
  request.headers.add("Oncekey-Attempt", fmt::format_int(std::uint64_t{held.job.attempts} + 1).c_str());
  if (!endpoint.authorization.empty()) request.headers.add("Authorization", endpoint.authorization);
  return request;
}

} // namespace

Result<std::unique_ptr<HttpCarrier>> HttpCarrier::make(const Endpoint& endpoint, const Config& config, Loop& loop,
                                                       DeliveryMetrics& metrics) {
  std::unique_ptr<HttpCarrier> made(new HttpCarrier(endpoint, metrics.under_way(endpoint.name)));
  auto pool = UpstreamPool::make(options_of(endpoint, config), loop, made->connections_);
  if (!pool) return std::move(pool).fault();
  made->pool_ = std::move(pool).value();
  return made;
}

void HttpCarrier::carry(const HeldJob& job, std::function<void(Delivered)> done) { spawn(send(job, std::move(done))); }

Task<void> HttpCarrier::send(const HeldJob& job, std::function<void(Delivered)> done) {
  Delivered delivered;
  under_way_.Increment();
  try {
    co_await call(job, delivered);
  } catch (const std::exception& error) {
    delivered = Delivered{{0, error.what()}, {}}; // out of memory, say
  }
  under_way_.Decrement();
  done(std::move(delivered));
}

Task<void> HttpCarrier::call(const HeldJob& job, Delivered& delivered) {
  const UpstreamRequest request = request_of(endpoint_, job);
  const std::string& body = job.message.body;
  UpstreamCall call(*pool_);
  const MonotonicTime due = std::chrono::steady_clock::now() + endpoint_.timeout;
  const Fetched fetched = co_await fetch(call, request, body, due, kAnswerLimit);
  if (const auto* const failure = std::get_if<FetchFailure>(&fetched)) {
    delivered.result.reason = failure->reason;
    co_return;
  }
  const auto& answer = std::get<FetchedAnswer>(fetched);
  delivered.result.status = answer.status;
  delivered.result.reason = answer.reason;
  delivered.retry_after =
      retry_after(answer.headers, std::chrono::time_point_cast<Millis>(std::chrono::system_clock::now()));
}

} // namespace oncekey
