// store_bench: how fast the embedded store is, how it grows with its keys, and what the disk alone would do.
//
//   store_bench --dir DIR --do pairs [--seconds S] [--turns N] [--redis HOST:PORT]
//       durable claim + complete pairs by calls in flight, the log written by the loop and by a thread, beside a bare
//       log; with --redis the same work on a Redis (appendfsync always)
//   store_bench --dir DIR --do fill --keys N [--first N] [--seconds S]
//       completes so many keys, received over a day; in several runs where one would take too long
//   store_bench --dir DIR --do visit --keys N    start, cold replays and new claims of that store, beside one of a
//                                                thousand keys
//   store_bench --dir DIR --do drop              the day is over: its buckets are dropped
//
// DIR is that of the store and stays; pairs and fill make it. Nothing here asserts: numbers are printed for people.
#include "bare_log.h"
#include "base/log.h"
#include "load.h"
#include "store/journal/journal_store.h"
#include "usual_redis.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace oncekey::bench {
namespace {

constexpr std::uint64_t kNoEnd = std::numeric_limits<std::uint32_t>::max();

template <class... Arguments>
void say(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  fmt::print(text, std::forward<Arguments>(arguments)...);
  std::fflush(stdout);
}

std::unique_ptr<JournalStore> open_at(const std::string& dir, ClockSources clock = ClockSources::of_system()) {
  static Log log(LogLevel::warning);
  Result<std::unique_ptr<JournalStore>> store = JournalStore::open(
      {.path = dir, .log = log, .on_fatal = [](std::string reason) { stop(reason); }, .clock = std::move(clock)});
  if (!store) stop(store.fault().message);
  return *std::move(store);
}

// The machine's clocks, put back by a number of milliseconds that may change.
ClockSources clock_behind(const std::atomic<std::int64_t>& by) {
  ClockSources clock = ClockSources::of_system();
  clock.since_boot = [&by, inner = clock.since_boot] { return inner() - Millis{by.load()}; };
  clock.wall = [&by, inner = clock.wall] { return inner() - Millis{by.load()}; };
  return clock;
}

// Pairs.

struct Row {
  double rate = 0;
  double loop_us = 0; // CPU time a pair: of the event loop's thread, of the process, of the machine
  double process_us = 0;
  double machine_us = 0;
  double records_per_sync = 0;
  double p50 = 0; // of a call, in microseconds
  double p99 = 0;
};

// Counts what passes between its making and row().
class Meter {
 public:
  Row row(std::uint64_t pairs, double seconds, std::uint64_t syncs, std::uint64_t records,
          const CallTimes& times) const {
    const auto count = static_cast<double>(pairs);
    return {count / seconds,
            (thread_micros() - thread_) / count,
            (processor_micros() - process_) / count,
            (machine_micros() - machine_) / count,
            static_cast<double>(records) / static_cast<double>(std::max<std::uint64_t>(syncs, 1)),
            times.quantile(0.5),
            times.quantile(0.99)};
  }

 private:
  const double thread_ = thread_micros();
  const double process_ = processor_micros();
  const double machine_ = machine_micros();
};

Row measure_store(Store& store, std::uint64_t& first, std::size_t in_flight, LogWriter writer, Millis time) {
  const StoreStats before = store.stats();
  const Meter meter;
  PairLoad load(store, first, kNoEnd, time);
  load.retry_refused();
  const double seconds = load.run(in_flight, writer);
  if (load.refused() != 0) say("    the log was full: {} claims were refused and made again\n", load.refused());
  const StoreStats after = store.stats();
  first += load.pairs_done();
  return meter.row(load.pairs_done(), seconds, after.syncs - before.syncs, after.writes - before.writes,
                   load.call_times());
}

// Each write has a record of every call in flight: no log can gather more.
Row measure_bare(BareLog& log, std::size_t in_flight, Millis time) {
  constexpr std::size_t kPairBytes = 900; // in the journal's batches
  constexpr std::size_t kBlock = 4096;
  const std::size_t bytes = (in_flight * kPairBytes / 2 + kBlock - 1) / kBlock * kBlock;
  const Meter meter;
  CallTimes times;
  std::uint64_t syncs = 0;
  const Clock::time_point start = Clock::now();
  Clock::time_point begun = start;
  for (; begun - start < time; ++syncs) {
    log.write(bytes);
    const Clock::time_point ended = Clock::now();
    times.add(ended - begun);
    begun = ended;
  }
  const std::uint64_t records = syncs * in_flight;
  return meter.row(records / 2, seconds_since(start), syncs, records, times);
}

template <class Value>
double median_of(const std::vector<Row>& rows, Value value) {
  std::vector<double> values;
  for (const Row& row : rows) values.push_back(value(row));
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void print_row(std::string_view name, const std::vector<Row>& rows) {
  const auto middle = [&](double Row::*field) {
    return median_of(rows, [field](const Row& row) { return row.*field; });
  };
  say("    {:14} {:8.0f} pairs/s   CPU a pair: loop {:4.1f} us, process {:4.1f} us, machine {:4.1f} us   "
      "{:5.1f} records a sync   a call {:4.0f} us, p99 {:5.0f} us\n",
      name, middle(&Row::rate), middle(&Row::loop_us), middle(&Row::process_us), middle(&Row::machine_us),
      middle(&Row::records_per_sync), middle(&Row::p50), middle(&Row::p99));
}

void bench_redis(const std::string& address, std::size_t connections, double store_rate) {
  const UsualRedis done = run_usual_redis(address, connections, 60'000, 3600);
  const double rate = static_cast<double>(done.pairs) / done.seconds;
  say("    {:14} {:8.0f} pairs/s   (SET NX, SET): the store makes {:.1f} times as many\n", "Redis", rate,
      store_rate / rate);
}

void bench_pairs(const std::string& dir, Millis time, std::size_t turns, const std::string& redis) {
  const std::unique_ptr<JournalStore> store = open_at(dir);
  BareLog bare(dir + ".bare");
  std::uint64_t first = 0;
  for (const std::size_t in_flight : std::initializer_list<std::size_t>{1, 16, 64, 512}) {
    std::vector<Row> alone, by_loop, by_thread;
    // In turn, so that a busy moment of the machine meets all.
    for (std::size_t turn = 0; turn < turns; ++turn) {
      alone.push_back(measure_bare(bare, in_flight, std::min(time, Millis{1000})));
      by_loop.push_back(measure_store(*store, first, in_flight, LogWriter::loop, time));
      by_thread.push_back(measure_store(*store, first, in_flight, LogWriter::thread, time));
    }
    say("  {} in flight\n", in_flight);
    print_row("bare log", alone);
    print_row("loop writes", by_loop);
    print_row("thread writes", by_thread);
    if (in_flight == 1) {
      const auto ratio = [&](const std::vector<Row>& rows) {
        std::vector<Row> ratios = rows;
        for (std::size_t turn = 0; turn < turns; ++turn) ratios[turn].p50 /= alone[turn].p50;
        return median_of(ratios, [](const Row& row) { return row.p50; });
      };
      say("    a call takes {:.2f} times a bare sync, {:.2f} times with the thread\n", ratio(by_loop),
          ratio(by_thread));
    } else if (in_flight != 16 && !redis.empty()) {
      bench_redis(redis, in_flight, median_of(by_loop, [](const Row& row) { return row.rate; }));
    }
  }
}

// Many keys.

double megabytes(std::string_view what) {
  std::ifstream file("/proc/self/status");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with(what)) return std::atof(line.c_str() + what.size() + 1) * 1024 / 1e6;
  }
  return 0;
}
double resident() { return megabytes("VmRSS"); }

double gigabytes_of(const std::string& dir) {
  std::uintmax_t bytes = 0;
  std::error_code gone; // files come and go
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir)) {
    const std::uintmax_t size = entry.is_regular_file(gone) ? entry.file_size(gone) : 0;
    if (!gone) bytes += size;
  }
  return static_cast<double>(bytes) / 1e9;
}

// Until what goes on in the background is over; the seconds.
double wait_until_idle() {
  constexpr std::chrono::milliseconds kLook{500};
  constexpr double kIdleMicros = 10'000;
  const Clock::time_point start = Clock::now();
  for (;;) {
    const double before = processor_micros();
    std::this_thread::sleep_for(kLook);
    if (processor_micros() - before < kIdleMicros) return seconds_since(start);
  }
}

void bench_fill(const std::string& dir, std::uint64_t first, std::uint64_t keys, Millis time) {
  constexpr std::int64_t kSpread = (kRetention - Millis{3'600'000}).count();
  std::atomic<std::int64_t> behind = 0;
  const auto at_number = [&](std::uint64_t number) {
    const double left = 1 - static_cast<double>(number) / static_cast<double>(keys);
    behind = static_cast<std::int64_t>(static_cast<double>(kSpread) * left);
  };
  at_number(first);
  const std::unique_ptr<JournalStore> store = open_at(dir, clock_behind(behind));
  say("  begins           RSS {:.0f} MB\n", resident());
  const std::uint64_t part = keys / 10;
  Clock::time_point part_begun = Clock::now();
  PairLoad load(*store, first, keys - first, time);
  load.before_each([&](std::uint64_t number) {
    at_number(number);
    if (number == first || number % part != 0) return;
    say("  {:8} keys    {:6.0f} pairs/s, RSS {:.0f} MB\n", number,
        static_cast<double>(part) / seconds_since(part_begun), resident());
    part_begun = Clock::now();
  });
  load.retry_refused();
  const double processor_before = processor_micros();
  const double seconds = load.run(512);
  if (load.refused() != 0) say("  the log was full: {} claims were refused and made again\n", load.refused());
  const auto pairs = static_cast<double>(load.pairs_done());
  const double until_idle = wait_until_idle();
  say("  {:8} keys    in {:.0f} s ({:.0f} pairs/s), idle {:.0f} s later, {:.1f} us of CPU a pair; RSS {:.0f} MB, at "
      "most "
      "{:.0f} MB; {} buckets, {:.2f} GB on disk\n",
      first + load.pairs_done(), seconds, pairs / seconds, until_idle, (processor_micros() - processor_before) / pairs,
      resident(), megabytes("VmHWM"), store->stats().buckets, gigabytes_of(dir));
}

// Random ones of so many; replays a second.
double replay(Store& store, std::uint64_t keys, std::uint64_t times) {
  std::uint64_t found = 0;
  const Clock::time_point start = Clock::now();
  for (std::uint64_t i = 0; i < times; ++i) {
    store.claim(claim_of(mixed(i) % keys), [&](Result<ClaimAnswer> answer) {
      if (!answer) stop(answer.fault().message);
      found += std::holds_alternative<Found>(*answer) ? 1 : 0;
    });
  }
  const double rate = static_cast<double>(times) / seconds_since(start);
  if (found != times) say("  {} of {} keys were not found\n", times - found, times);
  return rate;
}

void bench_visit(const std::string& dir, std::uint64_t keys) {
  constexpr std::uint64_t kFew = 1000;
  constexpr std::uint64_t kReplays = 100'000;
  constexpr std::size_t kTurns = 5;
  constexpr std::size_t kInFlight = 64;
  constexpr Millis kTime{2000}; // both seal some segments
  const Clock::time_point start = Clock::now();
  const std::unique_ptr<JournalStore> store = open_at(dir);
  say("  started          in {:.3f} s, RSS {:.0f} MB, about {} records\n", seconds_since(start), resident(),
      store->stats().records_estimate);
  wait_until_idle();
  const double cold = replay(*store, keys, kReplays);
  const double again = replay(*store, keys, kReplays);
  say("  cold replays     {:.0f} a second, the same keys again {:.0f} a second; RSS {:.0f} MB\n", cold, again,
      resident());

  const std::string small_dir = dir + "-few";
  auto first = static_cast<std::uint64_t>(Clock::now().time_since_epoch().count()); // new ones with every visit
  std::vector<Row> few, many;
  std::vector<double> few_replays;
  for (std::size_t turn = 0; turn < kTurns; ++turn) {
    {
      const std::unique_ptr<JournalStore> small = open_at(small_dir);
      PairLoad(*small, 0, kFew).run(kInFlight);
      few_replays.push_back(replay(*small, kFew, kFew));
      wait_until_idle();
      few.push_back(measure_store(*small, first, kInFlight, LogWriter::loop, kTime));
    }
    std::filesystem::remove_all(small_dir);
    for (const char* const beside : {".witness", ".ballast"}) std::filesystem::remove(small_dir + beside);
    wait_until_idle();
    many.push_back(measure_store(*store, first, kInFlight, LogWriter::loop, kTime));
  }
  std::sort(few_replays.begin(), few_replays.end());
  say("  replays at {}   {:.0f} a second\n", kFew, few_replays[kTurns / 2]);
  say("  new keys, {} in flight, median of {} turns\n", kInFlight, kTurns);
  print_row("at a thousand", few);
  print_row("here", many);
  wait_until_idle();
  say("  in the end       RSS {:.0f} MB, {:.2f} GB on disk\n", resident(), gigabytes_of(dir));
}

void bench_drop(const std::string& dir) {
  std::atomic<std::int64_t> behind = 0;
  const std::unique_ptr<JournalStore> store = open_at(dir, clock_behind(behind));
  behind = -2 * kRetention.count();
  const Clock::time_point start = Clock::now();
  const Status dropped = store->maintain();
  if (!dropped) stop(dropped.fault().message);
  say("  buckets dropped  in {:.3f} s, RSS {:.0f} MB, {} buckets left\n", seconds_since(start), resident(),
      store->stats().buckets);
}

constexpr std::string_view kUsage =
    "usage: store_bench --dir DIR --do pairs|fill|visit|drop [--keys N] [--first N] [--seconds S] [--turns N] "
    "[--redis HOST:PORT]";

int run(const std::vector<std::string>& words) {
  std::map<std::string, std::string> given{{"--dir", ""},    {"--do", ""},       {"--keys", "1000000"},
                                           {"--first", "0"}, {"--seconds", "0"}, {"--turns", "3"},
                                           {"--redis", ""}};
  if (words.size() % 2 != 0) stop(kUsage);
  for (std::size_t i = 0; i < words.size(); i += 2) {
    const auto known = given.find(words[i]);
    if (known == given.end()) stop(kUsage);
    known->second = words[i + 1];
  }
  const auto number = [&](const std::string& name) {
    const long long read = std::atoll(given[name].c_str());
    if (read < 0) stop(fmt::format("{} must not be negative (got \"{}\")", name, given[name]));
    return static_cast<std::uint64_t>(read);
  };
  const std::string& dir = given["--dir"];
  const std::string& what = given["--do"];
  if (dir.empty()) stop(kUsage);
  const Millis time{1000 * static_cast<std::int64_t>(number("--seconds"))};
  const std::uint64_t first = number("--first");
  if ((what == "pairs" || (what == "fill" && first == 0)) && std::filesystem::exists(dir))
    stop("the directory exists already; give a new one: " + dir);
  if (what == "pairs") {
    bench_pairs(dir, time > Millis{} ? time : Millis{3000}, std::max<std::size_t>(number("--turns"), 1),
                given["--redis"]);
  } else if (what == "fill") {
    bench_fill(dir, first, number("--keys"), time > Millis{} ? time : Millis::max());
  } else if (what == "visit") {
    bench_visit(dir, number("--keys"));
  } else if (what == "drop") {
    bench_drop(dir);
  } else {
    stop(kUsage);
  }
  return 0;
}

} // namespace
} // namespace oncekey::bench

int main(int argc, char** argv) { return oncekey::bench::run(std::vector<std::string>(argv + 1, argv + argc)); }
