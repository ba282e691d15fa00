#include "delivery/deliverer.h"

#include "client/judge.h"
#include "delivery/attempt.h"
#include "delivery/staging.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace oncekey {
namespace {

// How often to look for messages that others have staged or left behind, and for pauses that are over.
constexpr Millis kPollEvery{250};
// One take, so that a store with a long queue of large messages is not asked for all of them at once.
constexpr std::size_t kTakeMax = 32;
// What a lease has beyond the time-out of an attempt, for waiting here before it and for writing down its end: as long
// again, within these.
constexpr Millis kLeaseSpareMin{2'000};
constexpr Millis kLeaseSpareMax{30'000};
// An attempt that begins with less than this to spare might outlast its lease: clocks are read late, timers tick.
constexpr Millis kLeaseMargin{500};
// Of the receiver's answer; nobody reads it.
constexpr std::size_t kAnswerBytesMax = 64u << 10;

UpstreamOptions options_of(const Endpoint& endpoint, const Config& config) {
  UpstreamOptions options;
  options.host = endpoint.url.host;
  options.port = endpoint.url.port;
  options.tls = endpoint.url.scheme == UpstreamUrl::Scheme::https;
  options.ca_file = endpoint.ca_file;
  options.ca_setting = fmt::format("\"{}\": ca", endpoint.name);
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
    const Field field = message.headers[at];
    // What the receiver asks of us is not for the sender to say.
    if (!endpoint.authorization.empty() && equal_ignoring_case(field.name, "Authorization")) continue;
    request.headers.add(field.name, field.value);
  }
  request.headers.add("Idempotency-Key", job.record.key);
  request.headers.add("Oncekey-Attempt", fmt::format_int(attempt_number(message)).c_str());
  if (!endpoint.authorization.empty()) request.headers.add("Authorization", endpoint.authorization);
  return request;
}

} // namespace

Deliverer::Message::Message(GatewayShared& shared, std::uint64_t& held_by_line, TakenJob taken)
    : job(std::move(taken)), held_(shared.shares, Resource::buffered_bytes, nullptr), held_by_line_(held_by_line) {
  held_.add(job.record.response->body.size());
  held_by_line_ += held_.held();
}

Deliverer::Message::Message(Message&& other) noexcept
    : job(std::move(other.job)), held_(std::move(other.held_)), held_by_line_(other.held_by_line_) {}

void Deliverer::Message::let_go() {
  held_by_line_ -= held_.held();
  held_.let_go();
}

Deliverer::Line::Line(const Endpoint& place, std::uint64_t longest_message, DeliveryMetrics& metrics)
    : endpoint(place),
      lease(place.timeout + std::clamp(place.timeout, kLeaseSpareMin, kLeaseSpareMax)),
      message_bytes_max(std::max<std::uint64_t>(1, longest_message)),
      gauge(metrics.under_way(place.name)),
      delivered(metrics.attempts(place.name, "delivered")) {}

std::size_t Deliverer::Line::room() const {
  const std::size_t here = under_way + waiting.size();
  const std::size_t most = std::size_t{2} * endpoint.concurrency;
  const std::size_t places = std::min(kTakeMax, most - std::min(most, here));
  const std::uint64_t fit = (share - std::min(share, held)) / message_bytes_max;
  return std::min<std::size_t>(places, here == 0 ? std::max<std::uint64_t>(1, fit) : fit);
}

Deliverer::Deliverer(GatewayShared& shared, DeliveryMetrics& metrics, Loop& timers)
    : shared_(shared),
      metrics_(metrics),
      timers_(timers),
      wakeups_(timers),
      poll_(timers,
            [this] {
              poll_.after(kPollEvery);
              look();
            }),
      random_(static_cast<std::minstd_rand::result_type>(random_u64())) {}

Deliverer::~Deliverer() = default;

Result<std::unique_ptr<Deliverer>> Deliverer::make(GatewayShared& shared, DeliveryMetrics& metrics, Loop& timers) {
  std::unique_ptr<Deliverer> made(new Deliverer(shared, metrics, timers));
  for (const Webhook& webhook : shared.config().webhooks)
    made->lines_.push_back(std::make_unique<Line>(webhook.endpoint, webhook.max_body, metrics));
  for (const Endpoint& destination : shared.config().destinations)
    made->lines_.push_back(std::make_unique<Line>(destination, kMessageBytesMax, metrics));
  for (const auto& line : made->lines_) {
    auto pool = UpstreamPool::make(options_of(line->endpoint, shared.config()), timers, line->connections);
    if (!pool) return std::move(pool).fault();
    line->pool = std::move(pool).value();
    // Messages are held in memory like the bodies of requests, and must leave these half of it.
    line->share = shared.config().limits.max_buffered_bytes / 2 / made->lines_.size();
  }
  return made;
}

void Deliverer::start() {
  poll_.after(kPollEvery);
  look();
}

void Deliverer::stop() {
  poll_.clear();
  for (const auto& line : lines_) {
    while (!line->waiting.empty()) {
      Message message = std::move(line->waiting.front());
      line->waiting.pop_front();
      spawn(give_back(*line, std::move(message)));
    }
    line->pool->close_idle();
  }
  stopped_ = true; // after what is given back is counted
}

void Deliverer::poke() {
  if (!has_room_.load() || poked_.exchange(true)) return;
  timers_.post([this] {
    poked_ = false;
    look();
  });
}

void Deliverer::look() {
  for (const auto& line : lines_) look(*line);
  // Looked at after the takes were sent; a place that gets free looks by itself.
  has_room_ = std::any_of(lines_.begin(), lines_.end(), [](const auto& line) { return line->room() > 0; });
}

void Deliverer::look(Line& line) {
  if (stopped_) return;
  if (line.looking) {
    line.look_again = true;
    return;
  }
  const std::size_t limit = line.room();
  if (limit == 0) return; // a place that gets free looks again
  const Shares& shares = shared_.shares;
  if (shares.in_use(Resource::buffered_bytes) > shares.limit(Resource::buffered_bytes).all) return; // requests need it
  spawn(take(line, limit));
}

Task<void> Deliverer::take(Line& line, std::size_t limit) {
  const Counted under_way(open_);
  line.looking = true;
  line.look_again = false;
  using Jobs = std::vector<TakenJob>;
  const TakeRequest request{line.endpoint.name, limit, line.lease};
  Result<Jobs> taken =
      co_await await_store<Jobs>(wakeups_, [&](auto done) { shared_.store.take(request, std::move(done)); });
  line.looking = false;
  if (!taken) {
    if (!std::exchange(line.failing, true)) {
      shared_.log.warning("deliveries_wait", {{"endpoint", line.endpoint.name}, {"reason", taken.fault().message}});
    }
    co_return;
  }
  if (std::exchange(line.failing, false)) shared_.log.info("deliveries_go_on", {{"endpoint", line.endpoint.name}});
  for (TakenJob& job : *taken) {
    Message message(shared_, line.held, std::move(job));
    if (stopped_) {
      spawn(give_back(line, std::move(message)));
    } else {
      line.waiting.push_back(std::move(message));
    }
  }
  start_waiting(line);
  // On the loop and not from here, where a store that answers at once would lead ever deeper.
  if (!taken->empty() || line.look_again) poke();
}

void Deliverer::start_waiting(Line& line) {
  while (!line.waiting.empty() && line.under_way < line.endpoint.concurrency) {
    Message message = std::move(line.waiting.front());
    line.waiting.pop_front();
    if (still_ours(line, message.job)) {
      spawn(deliver(line, std::move(message)));
    } else {
      spawn(give_back(line, std::move(message)));
    }
  }
}

bool Deliverer::still_ours(const Line& line, const TakenJob& job) const {
  return shared_.store.now() + line.endpoint.timeout + kLeaseMargin < job.record.lease_until;
}

Task<void> Deliverer::deliver(Line& line, Message message) {
  const Counted open(open_);
  TakenJob& job = message.job;
  line.gauge.Set(++line.under_way);
  try {
    Delivered delivered;
    co_await call(line, job, delivered);
    const Millis age = shared_.store.now() - job.record.first_received;
    AttemptEnd outcome =
        end_of(line.endpoint, std::move(*job.record.response), delivered, {age, job.record.ordered}, chance());
    if (outcome.kind == AttemptEnd::Kind::dead) {
      shared_.log.error("delivery_dead", {{"endpoint", line.endpoint.name},
                                          {"job", short_hash(job.id)},
                                          {"attempts", outcome.message.status},
                                          {"last", outcome.message.reason}});
    } else if (outcome.kind == AttemptEnd::Kind::again) {
      shared_.log.info("delivery_failed", {{"endpoint", line.endpoint.name},
                                           {"job", short_hash(job.id)},
                                           {"attempt", outcome.message.status},
                                           {"answer", outcome.message.reason},
                                           {"pause_ms", outcome.pause.count()}});
    }
    co_await end(line, job, std::move(outcome), Tried::yes);
  } catch (const std::exception& error) {
    // Out of memory, say. The lease runs out, and the message is taken again.
    shared_.log.error("delivery_failed", {{"endpoint", line.endpoint.name}, {"reason", error.what()}});
  }
  line.gauge.Set(--line.under_way);
  message.let_go();
  start_waiting(line);
  has_room_ = true;
  look(line);
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

Task<void> Deliverer::end(const Line& line, const TakenJob& job, AttemptEnd end, Tried tried) {
  const AttemptEnd::Kind kind = end.kind;
  const Ownership owner{job.id, job.record.fence};
  end.route = line.endpoint.name;
  const Result<FenceAnswer> answer = co_await await_store<FenceAnswer>(
      wakeups_, [&](auto done) { shared_.store.end_attempt(owner, std::move(end), std::move(done)); });
  if (!answer) {
    shared_.log.warning("attempt_not_written", {{"endpoint", line.endpoint.name},
                                                {"job", short_hash(owner.id)},
                                                {"reason", answer.fault().message},
                                                {"next", "it is taken again when its lease is over"}});
  }
  if (answer && *answer == FenceAnswer::done && kind == AttemptEnd::Kind::completed) {
    line.delivered.Increment();
    co_return;
  }
  const std::string_view outcome = !answer || *answer == FenceAnswer::lost ? "lost"
                                   : tried == Tried::no                    ? "put_back"
                                   : kind == AttemptEnd::Kind::dead        ? "dead"
                                                                           : "retry";
  metrics_.attempts(line.endpoint.name, outcome).Increment();
}

Task<void> Deliverer::give_back(Line& line, Message message) {
  const Counted open(open_);
  AttemptEnd unchanged = untried(std::move(*message.job.record.response), Millis{0});
  co_await end(line, message.job, std::move(unchanged), Tried::no);
}

} // namespace oncekey
