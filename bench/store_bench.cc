// store_bench: how fast the embedded store is, alone and beside Redis.
//
//   store_bench --dir DIR                       durable claim + complete pairs a second, by calls in flight
//   store_bench --dir DIR --redis HOST:PORT     the same work on a Redis (appendfsync always), and the ratio
//   store_bench --dir DIR --million             a million completed keys: memory, start-up, dropping the bucket
//
// DIR is made for the run and must not exist before. Nothing here asserts: numbers are printed for people.
#include "base/log.h"
#include "store/rocksdb/rocksdb_store.h"

#include <fmt/format.h>
#include <hiredis/hiredis.h>

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace oncekey {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Millis kLease{60'000};
constexpr Millis kRetention{24 * 3'600'000};
constexpr std::string_view kBody300 =
    R"({"id":"ch_3MmlLrLkdIwHu7ix0snN0B15","object":"charge","amount":1099,"amount_captured":1099,"currency":"usd",)"
    R"("description":"Rocket Rides, one way","status":"succeeded","paid":true,"captured":true,"customer":"cus_9s6XKzk",)"
    R"("receipt_url":"https://pay.example.com/receipts/CAcaFwoVYWNjdF8xTTJKVGtMa2RJd0h1N2l4","livemode":false})";

[[noreturn]] void stop(std::string_view why) {
  fmt::print(stderr, "store_bench: {}\n", why);
  std::exit(1);
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Processor time of the whole process so far, in microseconds: tells the store's own cost on a busy machine.
double processor_micros() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return 1e6 * static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

std::uint64_t mixed(std::uint64_t number) {
  number += 0x9E3779B97F4A7C15u;
  number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9u;
  number = (number ^ (number >> 27)) * 0x94D049BB133111EBu;
  return number ^ (number >> 31);
}

RecordId id_of(std::uint64_t number) {
  RecordId id;
  for (std::size_t word = 0; word < 4; ++word) {
    const std::uint64_t value = mixed(number * 4 + word);
    std::memcpy(id.bytes.data() + 8 * word, &value, sizeof value);
  }
  return id;
}

ClaimRequest claim_of(std::uint64_t number) {
  ClaimRequest request;
  request.id = id_of(number);
  std::memcpy(request.fingerprint.bytes.data(), request.id.bytes.data(), 32);
  request.lease = kLease;
  request.retention = kRetention;
  request.abandoned = Abandoned::take_over;
  request.route = "/v1/*";
  request.key = fmt::format("{:032x}", number);
  request.method = "POST";
  request.target = "/v1/charges";
  return request;
}

StoredResponse charge_response() {
  StoredResponse response;
  response.status = 200;
  response.reason = "OK";
  response.headers.add("Content-Type", "application/json");
  response.headers.add("Content-Length", std::to_string(kBody300.size()));
  response.body = kBody300;
  return response;
}

std::unique_ptr<RocksdbStore> open_at(const std::string& dir, Log& log,
                                      ClockSources clock = ClockSources::of_system()) {
  Result<std::unique_ptr<RocksdbStore>> store = RocksdbStore::open(
      {.path = dir, .log = log, .on_fatal = [](std::string reason) { stop(reason); }, .clock = std::move(clock)});
  if (!store) stop(store.fault().message);
  return *std::move(store);
}

// Keeps `in_flight` pairs going: the answer to a claim submits its complete, the answer to that the next claim. The
// answers come on the writer's thread and are handed to `submitters` threads, as a gateway hands them to its loops.
class PairLoad {
 public:
  PairLoad(Store& store, std::uint64_t first, std::uint64_t pairs) : store_(store), next_(first), end_(first + pairs) {}

  double run(std::size_t in_flight, std::size_t submitters) {
    const Clock::time_point start = Clock::now();
    loops_.resize(submitters);
    for (auto& loop : loops_) loop = std::make_unique<Loop>();
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < submitters; ++i) {
      Loop& loop = *loops_[i];
      const std::size_t share = in_flight / submitters;
      threads.emplace_back([this, &loop, share] { drive(loop, share); });
    }
    for (std::thread& thread : threads) thread.join();
    return seconds_since(start);
  }

 private:
  struct Event {
    RecordId id;
    std::uint64_t fence; // 0: the pair is done
  };
  struct Loop {
    std::mutex mutex;
    std::condition_variable filled;
    std::vector<Event> events;
    bool waits = false;
    std::size_t running = 0;

    void post(Event event) {
      bool wake;
      {
        const std::lock_guard lock(mutex);
        events.push_back(event);
        wake = std::exchange(waits, false);
      }
      if (wake) filled.notify_one();
    }
  };

  bool start_claim(Loop& loop) {
    const std::uint64_t number = next_.fetch_add(1, std::memory_order_relaxed);
    if (number >= end_) return false;
    ClaimRequest request = claim_of(number);
    const RecordId id = request.id;
    store_.claim(std::move(request), [&loop, id](Result<ClaimAnswer> answer) {
      if (!answer) stop(answer.fault().message);
      const Claimed* const claimed = std::get_if<Claimed>(&*answer);
      if (claimed == nullptr) stop("a new key was found claimed");
      loop.post({id, claimed->fence});
    });
    return true;
  }

  void start_complete(Loop& loop, const Event& event) {
    store_.complete({event.id, event.fence}, charge_response(), [&loop, id = event.id](Result<FenceAnswer> answer) {
      if (!answer) stop(answer.fault().message);
      if (*answer != FenceAnswer::done) stop("a completion was refused");
      loop.post({id, 0});
    });
  }

  void drive(Loop& loop, std::size_t in_flight) {
    for (std::size_t i = 0; i < in_flight; ++i) loop.running += start_claim(loop) ? 1 : 0;
    std::vector<Event> events;
    while (loop.running > 0) {
      events.clear();
      {
        std::unique_lock lock(loop.mutex);
        while (loop.events.empty()) {
          loop.waits = true;
          loop.filled.wait(lock);
        }
        loop.waits = false;
        loop.events.swap(events);
      }
      for (const Event& event : events) {
        if (event.fence != 0) {
          start_complete(loop, event);
        } else if (!start_claim(loop)) {
          --loop.running;
        }
      }
    }
  }

  Store& store_;
  std::atomic<std::uint64_t> next_;
  const std::uint64_t end_;
  std::vector<std::unique_ptr<Loop>> loops_;
};

struct Level {
  std::size_t in_flight;
  std::size_t submitters;
  std::uint64_t pairs;
};

double bench_store(const std::string& dir, Log& log) {
  const std::unique_ptr<RocksdbStore> store = open_at(dir, log);
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

// What a user would do: SET key claim NX PX, the work, SET key response PX; many connections, each with one call under
// way, which Redis gathers into one sync per round of its event loop.
double bench_redis(const std::string& address, std::size_t connections) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) stop("--redis wants HOST:PORT");
  const std::string host = address.substr(0, colon);
  const int port = std::atoi(address.c_str() + colon + 1);
  struct Free {
    void operator()(redisContext* context) const { redisFree(context); }
  };
  std::vector<std::unique_ptr<redisContext, Free>> open;
  for (std::size_t i = 0; i < connections; ++i) {
    open.emplace_back(redisConnect(host.c_str(), port));
    if (!open.back() || open.back()->err != 0) stop("no Redis at " + address);
  }
  const auto read_replies = [&open] {
    for (const auto& context : open) {
      void* reply = nullptr;
      if (redisGetReply(context.get(), &reply) != REDIS_OK || reply == nullptr) stop("Redis does not answer");
      if (static_cast<redisReply*>(reply)->type == REDIS_REPLY_ERROR) stop("Redis answered with an error");
      freeReplyObject(reply);
    }
  };
  const auto flush = [&open] {
    for (const auto& context : open) {
      int done = 0;
      while (done == 0) {
        if (redisBufferWrite(context.get(), &done) != REDIS_OK) stop("Redis went away");
      }
    }
  };
  const std::uint64_t rounds = 60'000 / connections;
  const std::string response(600, 'r');
  const std::string claim(200, 'c');
  const auto nonce = static_cast<std::uint64_t>(Clock::now().time_since_epoch().count());
  // One call on every connection, then all the answers.
  const auto send_all = [&](std::uint64_t round, const char* command, const std::string& value) {
    for (std::size_t i = 0; i < open.size(); ++i) {
      const std::string key = fmt::format("{}:{}:{}", nonce, round, i);
      redisAppendCommand(open[i].get(), command, key.data(), key.size(), value.data(), value.size());
    }
    flush();
    read_replies();
  };
  const Clock::time_point start = Clock::now();
  for (std::uint64_t round = 0; round < rounds; ++round) {
    send_all(round, "SET %b %b NX PX 86400000", claim);
    send_all(round, "SET %b %b PX 86400000", response);
  }
  const double rate = static_cast<double>(rounds * connections) / seconds_since(start);
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
    const std::unique_ptr<RocksdbStore> store = open_at(dir, log, turned_clock());
    fmt::print("million  idle            RSS {} MB\n", resident_megabytes());
    const double seconds = PairLoad(*store, 0, kKeys).run(1024, 1);
    fmt::print("million  loaded          {:.0f} pairs/s, RSS {} MB, {} buckets\n", kKeys / seconds,
               resident_megabytes(), store->stats().buckets);
  }
  Clock::time_point start = Clock::now();
  const std::unique_ptr<RocksdbStore> store = open_at(dir, log, turned_clock());
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
  return 0;
}

} // namespace
} // namespace oncekey

int main(int argc, char** argv) { return oncekey::run(std::vector<std::string_view>(argv + 1, argv + argc)); }
