#include "delivery/deliverer.h"

#include "client/judge.h"
#include "delivery/attempt.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace oncekey {
namespace {

// How often to look for messages that others have staged or left behind, and for pauses that are over.
constexpr Millis kPollEvery{250};
// One take, so that a store with a long queue of large messages is not asked for all of them at once.
constexpr std::size_t kTakeMax = 64;
// What a lease has beyond the time-out of an attempt, for waiting here before it and for writing down its end: as long
// again, within these.
constexpr Millis kLeaseSpareMin{2'000};
constexpr Millis kLeaseSpareMax{30'000};
// An endpoint that this gateway does not know; another one on the store may.
constexpr Millis kUnknownPause{30'000};
// Messages for an endpoint that is busy make room for others.
constexpr Millis kBusyPause{2'000};
// Of the receiver's answer; nobody reads it.
constexpr std::size_t kAnswerBytesMax = 64u << 10;

UpstreamOptions options_of(const Endpoint& endpoint, const Config& config) {
  UpstreamOptions options;
  options.host = endpoint.url.host;
  options.port = endpoint.url.port;
  options.tls = endpoint.url.scheme == UpstreamUrl::Scheme::https;
  options.ca_file = endpoint.ca_file;
  options.connect_timeout = std::min(config.timeouts.connect, endpoint.timeout);
  options.idle_timeout = config.timeouts.upstream_idle;
  options.max_header_bytes = config.limits.max_header_bytes;
  options.max_connections = endpoint.concurrency;
  return options;
}

UpstreamRequest request_of(const Endpoint& endpoint, const TakenJob& job) {
  const StoredResponse& message = *job.record.response;
  UpstreamRequest request;
  request.method = job.record.method;
  request.target = endpoint.target;
  request.headers.add("Host", endpoint.url.authority);
  for (std::size_t at = 0; at < message.headers.size(); ++at) {
    request.headers.add(message.headers[at].name, message.headers[at].value);
  }
  request.headers.add("Idempotency-Key", job.record.key);
  request.headers.add("Oncekey-Attempt", fmt::format_int(attempt_number(message)).c_str());
  if (!endpoint.authorization.empty()) request.headers.add("Authorization", endpoint.authorization);
  return request;
}

} // namespace

Deliverer::Deliverer(GatewayShared& shared, DeliveryMetrics& metrics, Timers& timers)
    : shared_(shared),
      metrics_(metrics),
      timers_(timers),
      wakeups_(timers.context()),
      poll_(timers,
            [this] {
              poll_.after(kPollEvery);
              look();
            }),
      random_(static_cast<std::minstd_rand::result_type>(random_u64())) {}

Deliverer::~Deliverer() = default;

Result<std::unique_ptr<Deliverer>> Deliverer::make(GatewayShared& shared, DeliveryMetrics& metrics, Timers& timers) {
  std::unique_ptr<Deliverer> made(new Deliverer(shared, metrics, timers));
  std::vector<const Endpoint*> endpoints;
  for (const Webhook& webhook : shared.config.webhooks) endpoints.push_back(&webhook.endpoint);
  for (const Endpoint& destination : shared.config.destinations) endpoints.push_back(&destination);
  for (const Endpoint* const endpoint : endpoints) {
    auto line = std::make_unique<Line>(*endpoint, metrics.under_way(endpoint->name));
    auto pool = UpstreamPool::make(options_of(*endpoint, shared.config), timers, line->connections);
    if (!pool) return std::move(pool).fault();
    line->pool = std::move(pool).value();
    const Millis spare = std::clamp(endpoint->timeout, kLeaseSpareMin, kLeaseSpareMax);
    made->lease_ = std::max(made->lease_, endpoint->timeout + spare);
    made->lines_.push_back(std::move(line));
  }
  return made;
}

void Deliverer::start() {
  poll_.after(kPollEvery);
  look();
}

void Deliverer::stop() {
  stopping_ = true;
  poll_.clear();
  for (const auto& line : lines_) {
    while (!line->waiting.empty()) {
      TakenJob job = std::move(line->waiting.front());
      line->waiting.pop_front();
      give_back(std::move(job), Millis{0});
    }
    line->pool->close_idle();
  }
}

void Deliverer::poke() {
  if (poked_.exchange(true)) return;
  asio::post(timers_.context(), [this] {
    poked_ = false;
    look();
  });
}

std::size_t Deliverer::room() const {
  std::size_t room = 0;
  for (const auto& line : lines_) room += line->held_max() - std::min(line->held(), line->held_max());
  return std::min(room, kTakeMax);
}

void Deliverer::look() {
  if (stopping_) return;
  if (looking_) {
    look_again_ = true;
    return;
  }
  const std::size_t limit = room();
  if (limit == 0) return; // a place that gets free looks again
  looking_ = true;
  spawn(take(limit));
}

Task<void> Deliverer::take(std::size_t limit) {
  look_again_ = false;
  using Jobs = std::vector<TakenJob>;
  const TakeRequest request{limit, lease_};
  Result<Jobs> taken =
      co_await await_store<Jobs>(wakeups_, [&](auto done) { shared_.store.take(request, std::move(done)); });
  looking_ = false;
  if (!taken) {
    if (!std::exchange(store_failing_, true)) {
      shared_.log.warning("deliveries_wait", {{"reason", taken.fault().message}});
    }
    co_return;
  }
  if (std::exchange(store_failing_, false)) shared_.log.info("deliveries_go_on", {});
  held_ += taken->size();
  for (TakenJob& job : *taken) accept(std::move(job));
  // On the loop and not from here, where a store that answers at once would lead ever deeper.
  if (!taken->empty() || look_again_) poke();
}

void Deliverer::accept(TakenJob job) {
  if (stopping_) return give_back(std::move(job), Millis{0});
  const auto line = std::find_if(lines_.begin(), lines_.end(),
                                 [&](const auto& known) { return known->endpoint.name == job.record.route; });
  if (line == lines_.end()) {
    shared_.log.warning("endpoint_unknown", {{"endpoint", job.record.route},
                                             {"job", short_hash(job.id)},
                                             {"next", "configure it again, or drop the job: oncekey jobs drop"}});
    return give_back(std::move(job), kUnknownPause);
  }
  if ((*line)->held() >= (*line)->held_max()) {
    return give_back(std::move(job), kBusyPause + Millis{static_cast<std::int64_t>(chance() * 2000)});
  }
  (*line)->waiting.push_back(std::move(job));
  start_waiting(**line);
}

void Deliverer::start_waiting(Line& line) {
  while (!line.waiting.empty() && line.under_way < line.endpoint.concurrency) {
    TakenJob job = std::move(line.waiting.front());
    line.waiting.pop_front();
    if (!still_ours(line, job)) {
      give_back(std::move(job), Millis{0});
      continue;
    }
    ++line.under_way;
    line.gauge.Set(line.under_way);
    spawn(deliver(line, std::move(job)));
  }
}

// Whether the lease outlives an attempt that begins now. One that does not might meet the next owner's.
bool Deliverer::still_ours(const Line& line, const TakenJob& job) const {
  return shared_.store.now() + line.endpoint.timeout < job.record.lease_until;
}

Task<void> Deliverer::deliver(Line& line, TakenJob job) {
  Delivered delivered;
  co_await call(line, job, delivered);
  const Millis age = shared_.store.now() - job.record.first_received;
  AttemptEnd outcome = end_of(line.endpoint, *std::move(job.record.response), delivered, age, chance());
  const bool done = outcome.kind == AttemptEnd::Kind::completed;
  if (outcome.kind == AttemptEnd::Kind::dead) {
    shared_.log.error("delivery_dead", {{"endpoint", line.endpoint.name},
                                        {"job", short_hash(job.id)},
                                        {"attempts", outcome.message.status},
                                        {"last", outcome.message.reason}});
  } else if (!done) {
    shared_.log.info("delivery_failed", {{"endpoint", line.endpoint.name},
                                         {"job", short_hash(job.id)},
                                         {"attempt", outcome.message.status},
                                         {"answer", outcome.message.reason},
                                         {"pause_ms", outcome.pause.count()}});
  }
  const Ownership owner{job.id, job.record.fence};
  co_await end(line.endpoint.name, owner, std::move(outcome));
  --line.under_way;
  line.gauge.Set(line.under_way);
  start_waiting(line);
  look();
}

Task<void> Deliverer::call(Line& line, const TakenJob& job, Delivered& delivered) {
  const UpstreamRequest request = request_of(line.endpoint, job);
  const std::string& body = job.record.response->body;
  UpstreamCall call(*line.pool);
  const MonotonicTime due = std::chrono::steady_clock::now() + line.endpoint.timeout;
  CallError error = co_await call.send(request, Framing::length, body.size(), body, due);
  ResponseHead head;
  while (error == CallError::none && head.status < 200) error = co_await call.read_head(head);
  std::size_t read = 0;
  while (error == CallError::none && read <= kAnswerBytesMax) {
    std::string_view piece;
    error = co_await call.read_piece(piece);
    if (piece.empty()) break;
    read += piece.size();
  }
  if (error != CallError::none) {
    delivered.reason = call.reason();
    co_return;
  }
  delivered.status = head.status;
  delivered.reason = head.reason;
  delivered.retry_after =
      retry_after(head.headers, std::chrono::time_point_cast<Millis>(std::chrono::system_clock::now()));
}

Task<void> Deliverer::end(std::string endpoint, Ownership owner, AttemptEnd end) {
  const AttemptEnd::Kind kind = end.kind;
  const bool tried = end.message.reason != "" || kind != AttemptEnd::Kind::again;
  const Result<FenceAnswer> answer = co_await await_store<FenceAnswer>(
      wakeups_, [&](auto done) { shared_.store.end_attempt(owner, std::move(end), std::move(done)); });
  if (!answer) {
    shared_.log.warning("attempt_not_written", {{"endpoint", endpoint},
                                                {"job", short_hash(owner.id)},
                                                {"reason", answer.fault().message},
                                                {"next", "it is taken again when its lease is over"}});
  }
  metrics_.count_attempt(endpoint, !answer || *answer == FenceAnswer::lost ? "lost"
                                   : kind == AttemptEnd::Kind::completed   ? "delivered"
                                   : kind == AttemptEnd::Kind::dead        ? "dead"
                                   : tried                                 ? "retry"
                                                                           : "put_back");
  --held_;
}

void Deliverer::give_back(TakenJob job, Millis pause) {
  spawn(end(std::move(job.record.route), {job.id, job.record.fence}, untried(*std::move(job.record.response), pause)));
}

} // namespace oncekey
