// shared_bench: claim + complete pairs on a shared store, as one gateway makes them, and beside it by hand.
//
//   shared_bench --store URL [--in-flight N] [--seconds S] [--first N]    one gateway's worth of load
//   shared_bench --usual-redis HOST:PORT [--in-flight N] [--seconds S]    SET NX, then SET, on N connections
//
// Prints one line of JSON for bench/run: pairs, seconds, the process' CPU time, and the store's round trips.
#include "base/log.h"
#include "load.h"
#include "store/open_store.h"
#include "usual_redis.h"

#include <fmt/format.h>

#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey::bench {
namespace {

constexpr std::string_view kUsage =
    "usage: shared_bench --store URL | --usual-redis HOST:PORT [--in-flight N] [--seconds S] [--first N]";

struct Arguments {
  std::string store;
  std::string usual_redis;
  std::size_t in_flight = 64;
  double seconds = 5;
  std::uint64_t first = 0;
};

Arguments read_arguments(const std::vector<std::string>& words) {
  Arguments read;
  for (std::size_t i = 0; i + 1 < words.size(); i += 2) {
    const std::string& name = words[i];
    const std::string& value = words[i + 1];
    if (name == "--store") {
      read.store = value;
    } else if (name == "--usual-redis") {
      read.usual_redis = value;
    } else if (name == "--in-flight") {
      read.in_flight = static_cast<std::size_t>(std::atoll(value.c_str()));
    } else if (name == "--seconds") {
      read.seconds = std::atof(value.c_str());
    } else if (name == "--first") {
      read.first = static_cast<std::uint64_t>(std::atoll(value.c_str()));
    } else {
      stop(kUsage);
    }
  }
  if (words.size() % 2 != 0 || read.store.empty() == read.usual_redis.empty() || read.in_flight == 0) stop(kUsage);
  return read;
}

void print(std::uint64_t pairs, double seconds, double cpu_micros, std::uint64_t round_trips) {
  fmt::print(R"({{"pairs": {}, "seconds": {:.3f}, "cpu_us": {:.0f}, "round_trips": {}}})"
             "\n",
             pairs, seconds, cpu_micros, round_trips);
}

void run_store(const Arguments& arguments) {
  Log log(LogLevel::warning);
  const auto on_fatal = [](const std::string& reason) { stop(reason); };
  const StoreOptions options{.log = log, .on_fatal = on_fatal};
  Result<std::unique_ptr<Store>> store = open_store(arguments.store, options);
  if (!store) stop(store.fault().message);
  const StoreStats before = (*store)->stats();
  const double cpu_before = processor_micros();
  PairLoad load(**store, arguments.first, std::numeric_limits<std::uint32_t>::max(),
                Millis(static_cast<std::int64_t>(arguments.seconds * 1000)));
  const double seconds = load.run(arguments.in_flight);
  print(load.pairs_done(), seconds, processor_micros() - cpu_before, (*store)->stats().syncs - before.syncs);
}

int run(const std::vector<std::string>& words) {
  const Arguments arguments = read_arguments(words);
  if (!arguments.store.empty()) {
    run_store(arguments);
    return 0;
  }
  const double cpu_before = processor_micros();
  const UsualRedis done = run_usual_redis(arguments.usual_redis, arguments.in_flight,
                                          std::numeric_limits<std::uint64_t>::max(), arguments.seconds);
  print(done.pairs, done.seconds, processor_micros() - cpu_before, 2 * done.pairs);
  return 0;
}

} // namespace
} // namespace oncekey::bench

int main(int argc, char** argv) { return oncekey::bench::run(std::vector<std::string>(argv + 1, argv + argc)); }
