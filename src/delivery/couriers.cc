#include "delivery/couriers.h"

#include "base/shares.h"
#include "core/judge.h"
#include "delivery/attempt.h"
#include "delivery/staging.h"
#include "http/fetch.h"
#include "http/upstream.h"
#include "jobs/courier.h"

#include <fmt/format.h>

#include <random>

namespace oncekey {
namespace {

// How often to look for jobs that other gateways have staged or left behind, and for pauses that are over.
constexpr Millis kPollEvery{250};

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

// What a lease has beyond the time-out of an attempt, for waiting here before it and for writing down its end: as long
// again, within these.
constexpr Millis kLeaseSpareMin{2'000};
constexpr Millis kLeaseSpareMax{30'000};
// An attempt that begins with less than this to spare might outlast its lease: clocks are read late, timers tick.
constexpr Millis kLeaseMargin{500};
// A message that this version cannot read is left alone for so long.
constexpr Millis kUnreadablePause{60'000};

} // namespace

// A job that a courier has taken. Its body counts for its destination and for the gateway as long as it is in memory.
class HeldJob {
 public:
  HeldJob(Shares& shares, std::uint64_t& held_here, TakenJob taken)
      : job(std::move(taken.job)),
        message(std::move(taken.message)),
        held_(shares, Resource::buffered_bytes, nullptr), // in no caller's share
        held_here_(held_here) {
    held_.add(message.body.size());
    held_here_ += held_.held();
  }
  HeldJob(HeldJob&& other) noexcept = default;
  HeldJob& operator=(HeldJob&&) = delete;
  ~HeldJob() { held_here_ -= held_.held(); } // nothing if it was moved from

  StoredJob job;
  Message message;

 private:
  Holding held_;
  std::uint64_t& held_here_;
};

// Sends the jobs of one webhook or destination to its URL.
class HttpCarrier final : public Carrier<HeldJob, Delivered> {
 public:
  HttpCarrier(const Endpoint& endpoint, prometheus::Gauge& under_way) : endpoint_(endpoint), under_way_(under_way) {}
  Status connect(UpstreamOptions options, Loop& loop) {
    auto pool = UpstreamPool::make(std::move(options), loop, connections_);
    if (!pool) return std::move(pool).fault();
    pool_ = std::move(pool).value();
    return ok_status();
  }

  void carry(const HeldJob& job, std::function<void(Delivered)> done) override { spawn(send(job, std::move(done))); }
  void close_idle() { pool_->close_idle(); }

 private:
  UpstreamRequest request_of(const HeldJob& held) const {
    UpstreamRequest request;
    request.method = held.message.method;
    request.target = endpoint_.url.target;
    request.headers.add("Host", endpoint_.url.authority);
    const Headers& headers = held.message.headers;
    for (std::size_t at = 0; at < headers.size(); ++at) {
      const Field field = headers[at];
      // What the receiver asks of us is not for the sender to say.
      if (!endpoint_.authorization.empty() && equal_ignoring_case(field.name, "Authorization")) continue;
      request.headers.add(field.name, field.value);
    }
    request.headers.add("Idempotency-Key", held.job.key);
    request.headers.add("Oncekey-Attempt", fmt::format_int(std::uint64_t{held.job.attempts} + 1).c_str());
    if (!endpoint_.authorization.empty()) request.headers.add("Authorization", endpoint_.authorization);
    return request;
  }

  Task<void> send(const HeldJob& job, std::function<void(Delivered)> done) {
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

  Task<void> call(const HeldJob& job, Delivered& delivered) {
    const UpstreamRequest request = request_of(job);
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

  const Endpoint& endpoint_;
  prometheus::Gauge& under_way_;
  std::atomic<std::uint32_t> connections_{0};
  std::unique_ptr<UpstreamPool> pool_;
};

// The jobs of one webhook or destination in the gateway's store.
class StoreSource final : public JobSource<HeldJob, Delivered> {
 public:
  // `share` is what its jobs may hold of the memory: a receiver that hangs holds up its own alone.
  StoreSource(GatewayShared& shared, DeliveryMetrics& metrics, Loop& loop, const Endpoint& endpoint,
              std::uint64_t longest_message, std::uint64_t share)
      : shared_(shared),
        metrics_(metrics),
        loop_(loop),
        endpoint_(endpoint),
        lease_(endpoint.timeout + std::clamp(endpoint.timeout, kLeaseSpareMin, kLeaseSpareMax)),
        message_bytes_max_(std::max<std::uint64_t>(1, longest_message)),
        share_(share),
        random_(static_cast<std::minstd_rand::result_type>(random_u64())),
        delivered_(metrics.attempts(endpoint.name, "delivered")) {}

  std::size_t room() const override {
    const Shares& shares = shared_.shares;
    if (shares.in_use(Resource::buffered_bytes) > shares.limit(Resource::buffered_bytes).all)
      return 0; // requests need it
    const std::uint64_t fit = (share_ - std::min(share_, held_)) / message_bytes_max_;
    return held_ == 0 ? std::max<std::uint64_t>(1, fit) : fit;
  }

  bool still_ours(const HeldJob& job) const override {
    return shared_.store.now() + endpoint_.timeout + kLeaseMargin < job.job.due_at;
  }

  void take(std::size_t limit, std::function<void(std::vector<HeldJob>)> done) override {
    spawn(take_due(limit, std::move(done)));
  }

  void end(HeldJob& held, Delivered delivered, std::function<void()> done) override {
    const Millis age = shared_.store.now() - held.job.staged_at;
    AttemptEnd end = end_of(endpoint_, held.job, delivered, age, std::uniform_real_distribution<double>(0, 1)(random_));
    log_end(held.job, end);
    spawn(write_end(held.job, std::move(end), Tried::yes, std::move(done)));
  }

  void give_back(HeldJob& held, std::function<void()> done) override {
    AttemptEnd end;
    end.kind = AttemptEnd::Kind::again;
    spawn(write_end(held.job, std::move(end), Tried::no, std::move(done)));
  }

 private:
  enum class Tried { no, yes };

  // What is corrupt stays so. What a newer version wrote is left to it.
  Task<void> end_unreadable(const TakenJob& taken) {
    AttemptEnd end;
    const bool corrupt = taken.unreadable->kind == FaultKind::corrupt;
    end.kind = corrupt ? AttemptEnd::Kind::dead : AttemptEnd::Kind::again;
    end.result = AttemptResult{0, taken.unreadable->message};
    end.why_dead = "its message cannot be read";
    end.pause = kUnreadablePause;
    log_end(taken.job, end);
    return write_end(taken.job, std::move(end), Tried::yes, [] {});
  }

  Task<void> take_due(std::size_t limit, std::function<void(std::vector<HeldJob>)> done) {
    std::vector<HeldJob> held;
    std::string failure;
    try {
      using Jobs = std::vector<TakenJob>;
      const TakeRequest request{endpoint_.name, limit, lease_, Millis{0}};
      Result<Jobs> taken = co_await await_store<Jobs>(
          loop_, [&](auto answered) { shared_.store.jobs().take(request, std::move(answered)); });
      if (taken) {
        held.reserve(taken->size());
        for (TakenJob& job : *taken) {
          // Another gateway on this store encrypts. Delivered as it is, the event would be lost.
          if (job.message.sealed && !job.unreadable) {
            job.unreadable = unavailable(
                fmt::format("its message is encrypted with key {}, and this gateway has no encryption_key_file",
                            job.message.sealed->key_id));
          }
          if (!job.unreadable) {
            held.emplace_back(shared_.shares, held_, std::move(job));
            continue;
          }
          Task<void> ending = end_unreadable(job);
          co_await std::move(ending);
        }
      } else {
        failure = taken.fault().message;
      }
    } catch (const std::exception& error) {
      failure = error.what(); // out of memory, say; what was taken is due again when its lease is over
    }
    if (std::exchange(failing_, !failure.empty()) != failing_) {
      if (failing_) {
        shared_.log.warning("destination_paused", {{"destination", endpoint_.name}, {"reason", failure}});
      } else {
        shared_.log.info("destination_resumed", {{"destination", endpoint_.name}});
      }
    }
    done(std::move(held));
  }

  void log_end(const StoredJob& job, const AttemptEnd& end) const {
    if (end.kind == AttemptEnd::Kind::dead) {
      shared_.log.error("job_dead", {{"destination", endpoint_.name},
                                     {"job", short_hash(job.id)},
                                     {"attempts", job.attempts + 1},
                                     {"reason", end.why_dead},
                                     {"last", to_string(*end.result)}});
    } else if (end.kind == AttemptEnd::Kind::again) {
      shared_.log.info("job_attempt_failed", {{"destination", endpoint_.name},
                                              {"job", short_hash(job.id)},
                                              {"attempt", job.attempts + 1},
                                              {"answer", to_string(*end.result)},
                                              {"pause_ms", end.pause.count()}});
    }
  }

  Task<void> write_end(const StoredJob& job, AttemptEnd end, Tried tried, std::function<void()> done) {
    const AttemptEnd::Kind kind = end.kind;
    const Ownership owner{job.id, job.fence};
    end.route = endpoint_.name;
    end.gateway = shared_.name;
    std::string failure;
    bool lost = true;
    try {
      const Result<FenceAnswer> answer = co_await await_store<FenceAnswer>(
          loop_, [&](auto answered) { shared_.store.jobs().end_attempt(owner, std::move(end), std::move(answered)); });
      lost = !answer || *answer == FenceAnswer::lost;
      if (!answer) failure = answer.fault().message;
    } catch (const std::exception& error) {
      failure = error.what();
    }
    if (!failure.empty()) {
      shared_.log.warning("attempt_not_written", {{"destination", endpoint_.name},
                                                  {"job", short_hash(owner.id)},
                                                  {"reason", failure},
                                                  {"next", "it is taken again when its lease is over"}});
    }
    if (!lost && kind == AttemptEnd::Kind::delivered) {
      delivered_.Increment();
    } else {
      const std::string_view outcome = lost                             ? "lost"
                                       : tried == Tried::no             ? "put_back"
                                       : kind == AttemptEnd::Kind::dead ? "dead"
                                                                        : "retry";
      metrics_.attempts(endpoint_.name, outcome).Increment();
    }
    done();
  }

  GatewayShared& shared_;
  DeliveryMetrics& metrics_;
  Loop& loop_;
  const Endpoint& endpoint_;
  const Millis lease_;
  const std::uint64_t message_bytes_max_;
  const std::uint64_t share_;
  std::uint64_t held_ = 0;
  bool failing_ = false; // the store; said once in the log
  std::minstd_rand random_;
  prometheus::Counter& delivered_;
};

struct Couriers::Line {
  Line(Couriers& couriers, const Endpoint& place, std::uint64_t longest_message, std::uint64_t share)
      : all(couriers),
        endpoint(place),
        carrier(place, all.metrics_.under_way(place.name)),
        source(all.shared_, all.metrics_, all.loop_, place, longest_message, share),
        courier(source, carrier, place.concurrency, [this] { look_soon(); }) {}

  void look() {
    poked = false;
    courier.look();
    full = courier.room() == 0; // the end of an attempt looks by itself
  }
  void look_soon() {
    if (!poked.exchange(true)) all.loop_.post([this] { look(); });
  }

  Couriers& all;
  const Endpoint& endpoint;
  HttpCarrier carrier;
  StoreSource source;
  Courier<HeldJob, Delivered> courier;
  std::atomic<bool> poked{false};
  std::atomic<bool> full{false}; // while it is, staging need not wake the loop
};

Couriers::Couriers(GatewayShared& shared, DeliveryMetrics& metrics, Loop& loop)
    : shared_(shared), metrics_(metrics), loop_(loop), poll_(loop, [this] {
        poll_.after(kPollEvery);
        for (const auto& line : lines_) line->look();
      }) {}

Couriers::~Couriers() = default;

Result<std::unique_ptr<Couriers>> Couriers::make(GatewayShared& shared, DeliveryMetrics& metrics, Loop& loop) {
  std::unique_ptr<Couriers> made(new Couriers(shared, metrics, loop));
  const Config& config = shared.config();
  // Messages are held in memory like the bodies of requests, and must leave these half of it.
  const std::size_t endpoints = config.webhooks.size() + config.destinations.size();
  const std::uint64_t share = config.limits.max_buffered_bytes / 2 / std::max<std::size_t>(1, endpoints);
  for (const Webhook& webhook : config.webhooks) {
    if (const Status added = made->add(webhook.endpoint, webhook.max_body, share); !added) return added.fault();
  }
  for (const Endpoint& destination : config.destinations) {
    if (const Status added = made->add(destination, kMessageBytesMax, share); !added) return added.fault();
  }
  return made;
}

Status Couriers::add(const Endpoint& endpoint, std::uint64_t longest_message, std::uint64_t share) {
  lines_.push_back(std::make_unique<Line>(*this, endpoint, longest_message, share));
  return lines_.back()->carrier.connect(options_of(endpoint, shared_.config()), loop_);
}

void Couriers::start() {
  poll_.after(kPollEvery);
  for (const auto& line : lines_) line->look();
}

void Couriers::stop() {
  poll_.clear();
  for (const auto& line : lines_) {
    line->courier.stop();
    line->carrier.close_idle();
  }
}

void Couriers::poke(const Endpoint& endpoint) {
  for (const auto& line : lines_) {
    if (line->endpoint.name == endpoint.name && !line->full) line->look_soon();
  }
}

bool Couriers::over() const {
  return std::all_of(lines_.begin(), lines_.end(), [](const auto& line) { return line->courier.over(); });
}

} // namespace oncekey
