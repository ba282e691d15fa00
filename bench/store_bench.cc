// store_bench: how fast the embedded store is, alone and beside Redis.
//
//   store_bench --dir DIR                       durable claim + complete pairs a second, by calls in flight
//   store_bench --dir DIR --redis HOST:PORT     the same work on a Redis (appendfsync always), and the ratio
//   store_bench --dir DIR --million             a million completed keys: memory, start-up, dropping the bucket
//
// DIR is made for the run and must not exist before. Nothing here asserts: numbers are printed for people.
#include "base/log.h"
#include "load.h"
#include "store/journal/journal_store.h"
#include "usual_redis.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey::bench {
namespace {

std::unique_ptr<JournalStore> open_at(const std::string& dir, Log& log,
                                      ClockSources clock = ClockSources::of_system()) {
  Result<std::unique_ptr<JournalStore>> store = JournalStore::open(
      {.path = dir, .log = log, .on_fatal = [](std::string reason) { stop(reason); }, .clock = std::move(clock)});
  if (!store) stop(store.fault().message);
  return *std::move(store);
}

struct Level {
  std::size_t in_flight;
  std::size_t submitters;
  std::uint64_t pairs;
};

double bench_store(const std::string& dir, Log& log) {
  const std::unique_ptr<JournalStore> store = open_at(dir, log);
  std::uint64_t first = 0;
  double best = 0;
  for (const Level& level :
       {Level{1, 1, 2'000}, Level{64, 1, 60'000}, Level{512, 1, 400'000}, Level{1024, 1, 400'000}}) {
    const StoreStats before = store->stats();
    const double processor_before = processor_micros();
    const double seconds = PairLoad(*store, first, level.pairs).run(level.in_flight, level.submitters);
    const StoreStats after = store->stats();
    first += level.pairs;
    const double rate = static_cast<double>(level.pairs) / seconds;
    const std::uint64_t syncs = after.syncs - before.syncs;
    fmt::print(
        "store   in flight {:5}   {:8.0f} pairs/s   {:5.1f} us CPU each   {:7} syncs   mean batch {:6.1f}\n",
        level.in_flight, rate, (processor_micros() - processor_before) / static_cast<double>(level.pairs), syncs,
        static_cast<double>(after.writes - before.writes) / static_cast<double>(std::max<std::uint64_t>(syncs, 1)));
    std::fflush(stdout);
    best = std::max(best, rate);
  }
  return best;
}

double bench_redis(const std::string& address, std::size_t connections) {
  const UsualRedis done = run_usual_redis(address, connections, 60'000, 3600);
  const double rate = static_cast<double>(done.pairs) / done.seconds;
  fmt::print("redis   connections {:3}   {:8.0f} pairs/s   (SET NX, SET; appendfsync as configured)\n", connections,
             rate);
  return rate;
}

std::uint64_t resident_megabytes() {
  std::ifstream file("/proc/self/status");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("VmRSS:")) return static_cast<std::uint64_t>(std::atoll(line.c_str() + 6)) / 1024;
  }
  return 0;
}

void bench_million(const std::string& dir, Log& log) {
  constexpr std::uint64_t kKeys = 1'000'000;
  std::atomic<std::int64_t> skipped = 0; // milliseconds the clock is turned forward by
  const auto turned_clock = [&skipped] {
    ClockSources clock = ClockSources::of_system();
    clock.since_boot = [&skipped, inner = clock.since_boot] { return inner() + Millis{skipped.load()}; };
    return clock;
  };
  {
    const std::unique_ptr<JournalStore> store = open_at(dir, log, turned_clock());
    fmt::print("million  idle            RSS {} MB\n", resident_megabytes());
    const double seconds = PairLoad(*store, 0, kKeys).run(1024, 1);
    fmt::print("million  loaded          {:.0f} pairs/s, RSS {} MB, {} buckets\n", kKeys / seconds,
               resident_megabytes(), store->stats().buckets);
  }
  Clock::time_point start = Clock::now();
  const std::unique_ptr<JournalStore> store = open_at(dir, log, turned_clock());
  fmt::print("million  reopened        in {:.3f} s, RSS {} MB, about {} records\n", seconds_since(start),
             resident_megabytes(), store->stats().records_estimate);

  std::uint64_t replayed = 0;
  start = Clock::now();
  for (std::uint64_t i = 0; i < 200'000; ++i) {
    store->claim(claim_of(mixed(i) % kKeys), [&](Result<ClaimAnswer> answer) {
      if (!answer) stop(answer.fault().message);
      replayed += std::holds_alternative<Found>(*answer) ? 1 : 0;
    });
  }
  fmt::print("million  random replays  {:.0f}/s ({} of 200000 found), RSS {} MB\n", 200'000 / seconds_since(start),
             replayed, resident_megabytes());

  skipped = 2 * kRetention.count();
  start = Clock::now();
  const Status dropped = store->maintain();
  if (!dropped) stop(dropped.fault().message);
  fmt::print("million  bucket dropped  in {:.3f} s, RSS {} MB, {} buckets left\n", seconds_since(start),
             resident_megabytes(), store->stats().buckets);
}

int run(const std::vector<std::string_view>& arguments) {
  std::string dir;
  std::optional<std::string> redis;
  bool million = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const bool has_value = i + 1 < arguments.size();
    if (arguments[i] == "--dir" && has_value) {
      dir = arguments[++i];
    } else if (arguments[i] == "--redis" && has_value) {
      redis = arguments[++i];
    } else if (arguments[i] == "--million") {
      million = true;
    } else {
      stop("usage: store_bench --dir DIR [--redis HOST:PORT] [--million]");
    }
  }
  if (dir.empty()) stop("usage: store_bench --dir DIR [--redis HOST:PORT] [--million]");
  if (std::filesystem::exists(dir)) stop("the directory exists already; give a new one: " + dir);
  Log log(LogLevel::warning);
  if (million) {
    bench_million(dir, log);
  } else {
    const double store_rate = bench_store(dir, log);
    if (redis) {
      double redis_rate = bench_redis(*redis, 64);
      redis_rate = std::max(redis_rate, bench_redis(*redis, 512));
      fmt::print("ratio   {:.1f} times Redis\n", store_rate / redis_rate);
    }
  }
  std::filesystem::remove_all(dir);
  std::filesystem::remove(dir + ".witness");
  return 0;
}

} // namespace
} // namespace oncekey::bench

int main(int argc, char** argv) { return oncekey::bench::run(std::vector<std::string_view>(argv + 1, argv + argc)); }
