// Courier: takes the jobs of one destination out of a source and hands them to its carrier.
//
// The gateway's source is its store and its carrier sends HTTP requests; the library's source is a table and its
// carriers are sinks. A courier serves one destination, so that one that is slow or dead delays no other.
//
// At least once, and never by two at a time: the source leases a job to one courier for longer than an attempt may
// take. Whatever ends the process, the lease runs out and the job is taken again. Nothing is kept here that the source
// does not know.
//
// Threads. A courier belongs to one thread: an event loop, or a thread of its own where the source and the carrier
// block. All calls and callbacks are made there; a callback may come before the call returns.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

namespace oncekey {

// Where the jobs of a destination come from, and where their ends are written down. No function throws; what goes wrong
// is the source's to report.
template <class Job, class Outcome>
class JobSource {
 public:
  virtual ~JobSource() = default;
  // Up to `limit` due jobs, leased to the caller; none if they cannot be read.
  virtual void take(std::size_t limit, std::function<void(std::vector<Job>)> done) = 0;
  // How many more jobs there is memory for. Asked before each take.
  virtual std::size_t room() const { return std::numeric_limits<std::size_t>::max(); }
  // Does the lease outlive an attempt that begins now? One that does not might meet the next owner's.
  virtual bool still_ours(const Job& job) const = 0;
  // How the attempt went. `job` lives until `done` is called.
  virtual void end(Job& job, Outcome outcome, std::function<void()> done) = 0;
  // No attempt was made: the job is due again.
  virtual void give_back(Job& job, std::function<void()> done) = 0;
};

// Brings a job to its receiver. Does not throw: what went wrong is an outcome.
template <class Job, class Outcome>
class Carrier {
 public:
  virtual ~Carrier() = default;
  // `job` lives until `done` is called.
  virtual void carry(const Job& job, std::function<void(Outcome)> done) = 0;
};

template <class Job, class Outcome>
class Courier {
 public:
  // One take, so that a source with a long queue of large jobs is not asked for all of them at once.
  static constexpr std::size_t kTakeMax = 32;

  // `at_once` attempts are under way at a time. `look_soon` is called when there may be more to take: it has look()
  // called again, after it returned. (A source that answers at once would lead ever deeper.)
  Courier(JobSource<Job, Outcome>& source, Carrier<Job, Outcome>& carrier, std::size_t at_once,
          std::function<void()> look_soon)
      : source_(source), carrier_(carrier), at_once_(at_once), look_soon_(std::move(look_soon)) {}
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  // Takes what is due, if there is room.
  void look() {
    if (stopped_) return;
    if (looking_) {
      look_again_ = true;
      return;
    }
    const std::size_t limit = room();
    if (limit == 0) return; // the end of an attempt looks again
    looking_ = true;
    look_again_ = false;
    ++open_;
    source_.take(limit, [this](std::vector<Job> taken) {
      looking_ = false;
      const bool more = !taken.empty() || look_again_;
      for (Job& job : taken) waiting_.push_back(std::make_shared<Job>(std::move(job)));
      go_on();
      if (more) look_soon_();
      --open_;
    });
  }

  // Takes nothing any more, and gives back what it has taken and not begun to deliver.
  void stop() {
    ++open_; // until what is given back is counted
    stopped_ = true;
    go_on();
    --open_;
  }
  // Has stopped, and nothing is under way any more. From any thread.
  bool over() const { return stopped_.load() && open_.load() == 0; }

  // Twice as many as are delivered at a time, so that no place stays empty while more are fetched. None before half of
  // those are begun: a take costs the source a write or a round trip, for one job or for many.
  std::size_t room() const {
    if (waiting_.size() > at_once_ / 2) return 0;
    const std::size_t here = under_way_ + waiting_.size();
    const std::size_t most = 2 * at_once_;
    const std::size_t places = std::min(kTakeMax, most - std::min(most, here));
    return std::min(places, source_.room());
  }

 private:
  using Held = std::shared_ptr<Job>;

  void go_on() {
    while (!waiting_.empty() && (stopped_ || under_way_ < at_once_)) {
      const Held job = std::move(waiting_.front());
      waiting_.pop_front();
      if (stopped_ || !source_.still_ours(*job)) {
        ++open_;
        source_.give_back(*job, [this, job] { --open_; });
      } else {
        deliver(job);
      }
    }
  }

  void deliver(const Held& job) {
    ++open_;
    ++under_way_;
    carrier_.carry(*job, [this, job](Outcome outcome) {
      source_.end(*job, std::move(outcome), [this, job] {
        --under_way_;
        go_on();
        if (!stopped_) look_soon_();
        --open_;
      });
    });
  }

  JobSource<Job, Outcome>& source_;
  Carrier<Job, Outcome>& carrier_;
  const std::size_t at_once_;
  const std::function<void()> look_soon_;
  std::deque<Held> waiting_;
  std::size_t under_way_ = 0;
  bool looking_ = false;
  bool look_again_ = false;
  std::atomic<std::uint32_t> open_{0}; // takes, deliveries and returns under way
  std::atomic<bool> stopped_{false};
};

} // namespace oncekey
