// What the benchmarks load stores with: pairs of a claim and its completion, as gateways make them.
#pragma once

#include "core/store.h"
#include "net/loop.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

namespace oncekey::bench {

using Clock = std::chrono::steady_clock;

inline constexpr Millis kLease{60'000};
inline constexpr Millis kRetention{24 * 3'600'000};

[[noreturn]] void stop(std::string_view why);

double seconds_since(Clock::time_point start);

// Processor time of the whole process so far, in microseconds: tells the store's own cost on a busy machine.
double processor_micros();
// The same of the calling thread: without what goes on in the background.
double thread_micros();
// The same of all processes and of the kernel, without the time that it waits for the disk.
double machine_micros();

// Numbers that look random and are the same in every run.
std::uint64_t mixed(std::uint64_t number);

ClaimRequest claim_of(std::uint64_t number);
StoredResponse charge_response();

// Who writes the log of an embedded store.
enum class LogWriter { loop, thread };

// How long calls took, to the microsecond.
class CallTimes {
 public:
  void add(Clock::duration taken);
  // The time that this part of the calls did not exceed, in microseconds.
  double quantile(double part) const;

 private:
  static constexpr std::size_t kMicrosMax = 100'000;
  std::vector<std::uint32_t> counts_ = std::vector<std::uint32_t>(kMicrosMax + 1);
  std::uint64_t calls_ = 0;
};

// Keeps `in_flight` pairs going, as a gateway with one event loop does: a coroutine of the loop claims, completes and
// begins with the next key.
class PairLoad {
 public:
  // Keys are numbered from `first`; the load ends after so many pairs, or at the end of `time` if that comes first.
  PairLoad(Store& store, std::uint64_t first, std::uint64_t pairs, Millis time = Millis::max())
      : store_(store), next_(first), end_(first + pairs), time_(time) {}

  // Called with the number of every key before its claim.
  void before_each(std::function<void(std::uint64_t number)> hear) { before_each_ = std::move(hear); }
  // Claims that are refused are made again a little later, where the load is more than the store can take for long.
  void retry_refused() { retries_ = true; }
  // The seconds it took.
  double run(std::size_t in_flight, LogWriter writer = LogWriter::loop);

  std::uint64_t pairs_done() const { return done_; }
  std::uint64_t refused() const { return refused_; }
  const CallTimes& call_times() const { return call_times_; }

 private:
  Task<void> make_pairs(Loop& loop);

  Store& store_;
  std::uint64_t next_;
  const std::uint64_t end_;
  const Millis time_;
  std::function<void(std::uint64_t)> before_each_;
  Clock::time_point until_{};
  std::size_t running_ = 0;
  std::uint64_t done_ = 0;
  bool retries_ = false;
  std::uint64_t refused_ = 0;
  CallTimes call_times_;
};

} // namespace oncekey::bench
