#include "delivery/store_source.h"

#include <algorithm>
#include <utility>

namespace oncekey {
namespace {

// What a lease has beyond the time-out of an attempt, for waiting here before it and for writing down its end: as long
// again, within these.
constexpr Millis kLeaseSpareMin{2'000};
constexpr Millis kLeaseSpareMax{30'000};
// An attempt that begins with less than this to spare might outlast its lease: clocks are read late, timers tick.
constexpr Millis kLeaseMargin{500};
// A message that this version cannot read is left alone for so long.
constexpr Millis kUnreadablePause{60'000};

} // namespace

StoreSource::StoreSource(GatewayShared& shared, DeliveryMetrics& metrics, Loop& loop, const Endpoint& endpoint,
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

std::size_t StoreSource::room() const {
  const Shares& shares = shared_.shares;
  if (shares.in_use(Resource::buffered_bytes) > shares.limit(Resource::buffered_bytes).all)
    return 0; // requests need it
  const std::uint64_t fit = (share_ - std::min(share_, held_)) / message_bytes_max_;
  return held_ == 0 ? std::max<std::uint64_t>(1, fit) : fit;
}

bool StoreSource::still_ours(const HeldJob& job) const {
  return shared_.store.now() + endpoint_.timeout + kLeaseMargin < job.job.due_at;
}

void StoreSource::take(std::size_t limit, std::function<void(std::vector<HeldJob>)> done) {
  spawn(take_due(limit, std::move(done)));
}

Task<void> StoreSource::take_due(std::size_t limit, std::function<void(std::vector<HeldJob>)> done) {
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

void StoreSource::end(HeldJob& held, Delivered delivered, std::function<void()> done) {
  const Millis age = shared_.store.now() - held.job.staged_at;
  AttemptEnd end = end_of(endpoint_, held.job, delivered, age, std::uniform_real_distribution<double>(0, 1)(random_));
  log_end(held.job, end);
  spawn(write_end(held.job, std::move(end), Tried::yes, std::move(done)));
}

// What is corrupt stays so. What a newer version wrote is left to it.
Task<void> StoreSource::end_unreadable(const TakenJob& taken) {
  AttemptEnd end;
  const bool corrupt = taken.unreadable->kind == FaultKind::corrupt;
  end.kind = corrupt ? AttemptEnd::Kind::dead : AttemptEnd::Kind::again;
  end.result = AttemptResult{0, taken.unreadable->message};
  end.why_dead = "its message cannot be read";
  end.pause = kUnreadablePause;
  log_end(taken.job, end);
  return write_end(taken.job, std::move(end), Tried::yes, [] {});
}

void StoreSource::give_back(HeldJob& held, std::function<void()> done) {
  AttemptEnd end;
  end.kind = AttemptEnd::Kind::again;
  spawn(write_end(held.job, std::move(end), Tried::no, std::move(done)));
}

void StoreSource::log_end(const StoredJob& job, const AttemptEnd& end) const {
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

Task<void> StoreSource::write_end(const StoredJob& job, AttemptEnd end, Tried tried, std::function<void()> done) {
  const AttemptEnd::Kind kind = end.kind;
  const Ownership owner{job.id, job.fence};
  end.route = endpoint_.name;
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

} // namespace oncekey
