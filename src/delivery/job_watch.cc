#include "delivery/job_watch.h"

#include "config/delivery.h"

#include <algorithm>
#include <set>
#include <utility>

namespace oncekey {
namespace {

// A look is a call to the store, and takes it some milliseconds where it has to count.
constexpr std::chrono::seconds kLookEvery{3};
// Buried in one step. Their messages are read with them.
constexpr std::size_t kBuriedAtOnce = 16;
// Long enough to write their ends.
constexpr Millis kBuryLease{60'000};

} // namespace

JobWatch::JobWatch(GatewayShared& shared, DeliveryMetrics& metrics, Timers& timers)
    : shared_(shared), metrics_(metrics), wakeups_(timers.context()), timer_(timers, [this] { look(); }) {}

void JobWatch::stop() {
  stopped_ = true;
  timer_.clear();
}

void JobWatch::look() {
  if (stopped_) return;
  timer_.after(kLookEvery);
  if (!looking_.exchange(true)) spawn(look_once());
}

Task<void> JobWatch::look_once() {
  std::string failure;
  try {
    using Counts = std::vector<JobCount>;
    const Result<Counts> counts =
        co_await await_store<Counts>(wakeups_, [&](auto done) { shared_.store.jobs().count(std::move(done)); });
    std::set<std::string> left_behind;
    if (counts) {
      show(*counts);
      for (const JobCount& each : *counts) {
        if (each.state != JobState::dead && !has_endpoint(shared_.config(), each.route)) left_behind.insert(each.route);
      }
    }
    for (const std::string& route : left_behind) co_await bury(route);
  } catch (const std::exception& error) {
    failure = error.what(); // out of memory, say
  }
  if (!failure.empty()) shared_.log.warning("jobs_not_counted", {{"reason", failure}});
  looking_ = false;
}

void JobWatch::show(const std::vector<JobCount>& counts) {
  for (const auto& [what, gauge] : shown_) gauge->Set(0);
  for (const JobCount& each : counts) {
    prometheus::Gauge*& gauge = shown_[{each.route, each.state}];
    if (gauge == nullptr) gauge = &metrics_.jobs(each.route, to_string(each.state));
    gauge->Set(static_cast<double>(each.count));
  }
}

Task<void> JobWatch::bury(std::string route) {
  using Jobs = std::vector<TakenJob>;
  const TakeRequest request{route, kBuriedAtOnce, kBuryLease, shared_.config().orphan_after};
  std::uint64_t buried = 0;
  for (bool more = true; more && !stopped_;) {
    const Result<Jobs> taken =
        co_await await_store<Jobs>(wakeups_, [&](auto done) { shared_.store.jobs().take(request, std::move(done)); });
    more = taken && !taken->empty();
    if (!more) break;
    for (const TakenJob& job : *taken) {
      const Ownership owner{job.job.id, job.job.fence};
      AttemptEnd end;
      end.kind = AttemptEnd::Kind::dead;
      end.why_dead = kNoSuchEndpoint;
      end.route = route;
      const Result<FenceAnswer> ended = co_await await_store<FenceAnswer>(
          wakeups_, [&](auto done) { shared_.store.jobs().end_attempt(owner, std::move(end), std::move(done)); });
      if (ended && *ended == FenceAnswer::done) ++buried;
    }
  }
  if (buried != 0) {
    shared_.log.error("jobs_left_behind",
                      {{"endpoint", route},
                       {"jobs", buried},
                       {"reason", kNoSuchEndpoint},
                       {"next", "configure it again and use oncekey jobs retry, or oncekey jobs drop"}});
  }
}

} // namespace oncekey
