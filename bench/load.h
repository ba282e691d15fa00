// What the benchmarks load stores with: pairs of a claim and its completion, as gateways make them.
#pragma once

#include "core/store.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace oncekey::bench {

using Clock = std::chrono::steady_clock;

inline constexpr Millis kLease{60'000};
inline constexpr Millis kRetention{24 * 3'600'000};

[[noreturn]] void stop(std::string_view why);

double seconds_since(Clock::time_point start);

// Processor time of the whole process so far, in microseconds: tells the store's own cost on a busy machine.
double processor_micros();

// Numbers that look random and are the same in every run.
std::uint64_t mixed(std::uint64_t number);

ClaimRequest claim_of(std::uint64_t number);
StoredResponse charge_response();

// Keeps `in_flight` pairs going: the answer to a claim submits its complete, the answer to that the next claim. The
// answers come on the store's threads and are handed to `submitters` threads, as a gateway hands them to its loops.
class PairLoad {
 public:
  // Keys are numbered from `first`; the load ends after so many pairs, or at the end of `time` if that comes first.
  PairLoad(Store& store, std::uint64_t first, std::uint64_t pairs, Millis time = Millis::max());
  ~PairLoad();

  // The seconds it took.
  double run(std::size_t in_flight, std::size_t submitters);
  std::uint64_t pairs_done() const { return done_.load(); }

 private:
  struct Event;
  struct Loop;

  bool start_claim(Loop& loop);
  void start_complete(Loop& loop, const Event& event);
  void drive(Loop& loop, std::size_t in_flight);

  Store& store_;
  std::atomic<std::uint64_t> next_;
  const std::uint64_t end_;
  const Millis time_;
  Clock::time_point until_{};
  std::atomic<std::uint64_t> done_{0};
  std::vector<std::unique_ptr<Loop>> loops_;
};

} // namespace oncekey::bench
