#include "cli/store_watch.h"

#include "config/config.h"

#include <algorithm>
#include <set>

namespace oncekey {
namespace {

// A look begins this long after the last one, or later: looking takes a twentieth of the time at most.
constexpr std::chrono::milliseconds kLookEvery{3000};
constexpr int kShareOfTime = 20;
// More waiting keys are logged at most this often.
constexpr std::chrono::seconds kSaidEvery{60};
// Buried in one step. Their messages are read with them.
constexpr std::size_t kBuriedAtOnce = 16;
// Long enough to write their ends.
constexpr Millis kBuryLease{60'000};

} // namespace

StoreWatch::StoreWatch(GatewayShared& shared, DeliveryMetrics& metrics, StoreCounts& counts, Loop& loop)
    : shared_(shared), metrics_(metrics), counts_(counts), loop_(loop), timer_(loop, [this] { look(); }) {}

void StoreWatch::stop() {
  stopped_ = true;
  timer_.clear();
}

void StoreWatch::look() {
  looking_ = true;
  spawn(look_once());
}

Task<void> StoreWatch::look_once() {
  const MonotonicTime began = std::chrono::steady_clock::now();
  try {
    const Result<WaitingKeys> keys =
        co_await await_store<WaitingKeys>(loop_, [&](auto done) { shared_.store.count_waiting(std::move(done)); });
    if (keys) say(*keys);
    using Counts = std::vector<JobCount>;
    const Result<Counts> jobs =
        co_await await_store<Counts>(loop_, [&](auto done) { shared_.store.jobs().count(std::move(done)); });
    std::set<std::string> left_behind;
    if (jobs) {
      show(*jobs);
      for (const JobCount& each : *jobs) {
        if (each.state != JobState::dead && !has_endpoint(shared_.config(), each.route)) left_behind.insert(each.route);
      }
    }
    for (const std::string& route : left_behind) co_await bury(route);
  } catch (const std::exception& error) {
    shared_.log.warning("store_not_looked_at", {{"reason", error.what()}}); // out of memory, say
  }
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - began);
  if (!stopped_) timer_.after(std::max(kLookEvery, kShareOfTime * took));
  looking_ = false;
}

void StoreWatch::say(const WaitingKeys& counted) {
  counts_.keys = counted;
  shared_.metrics.keys_abandoned.Set(static_cast<double>(counted.abandoned));
  shared_.metrics.keys_indeterminate.Set(static_cast<double>(counted.indeterminate));
  said_.abandoned = std::min(said_.abandoned, counted.abandoned);
  said_.indeterminate = std::min(said_.indeterminate, counted.indeterminate);
  const MonotonicTime now = std::chrono::steady_clock::now();
  if (counted == said_ || now < say_again_) return;
  said_ = counted;
  say_again_ = now + kSaidEvery;
  shared_.log.warning("keys_waiting", {{"abandoned", counted.abandoned},
                                       {"indeterminate", counted.indeterminate},
                                       {"meaning", "whether these requests were executed is not known"},
                                       {"next", "oncekey keys list --state waiting"}});
}

void StoreWatch::show(const std::vector<JobCount>& counts) {
  counts_.jobs = counts;
  for (const auto& [what, gauge] : shown_) gauge->Set(0);
  for (const JobCount& each : counts) {
    prometheus::Gauge*& gauge = shown_[{each.route, each.state}];
    if (gauge == nullptr) gauge = &metrics_.jobs(each.route, to_string(each.state));
    gauge->Set(static_cast<double>(each.count));
  }
}

Task<void> StoreWatch::bury(std::string route) {
  using Jobs = std::vector<TakenJob>;
  const TakeRequest request{route, kBuriedAtOnce, kBuryLease, shared_.config().orphan_after};
  std::uint64_t buried = 0;
  while (!stopped_) {
    const Result<Jobs> taken =
        co_await await_store<Jobs>(loop_, [&](auto done) { shared_.store.jobs().take(request, std::move(done)); });
    if (!taken || taken->empty()) break;
    for (const TakenJob& job : *taken) {
      const Ownership owner{job.job.id, job.job.fence};
      AttemptEnd end;
      end.kind = AttemptEnd::Kind::dead;
      end.why_dead = kNoSuchEndpoint;
      end.route = route;
      const Result<FenceAnswer> ended = co_await await_store<FenceAnswer>(
          loop_, [&](auto done) { shared_.store.jobs().end_attempt(owner, std::move(end), std::move(done)); });
      if (ended && *ended == FenceAnswer::done) ++buried;
    }
  }
  if (buried == 0) co_return;
  shared_.log.error("jobs_left_behind",
                    {{"destination", route},
                     {"jobs", buried},
                     {"reason", kNoSuchEndpoint},
                     {"next", "configure it again and use oncekey jobs retry, or oncekey jobs drop"}});
}

} // namespace oncekey
