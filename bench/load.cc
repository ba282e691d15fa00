#include "load.h"

#include <fmt/format.h>

#include <sys/resource.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace oncekey::bench {
namespace {

constexpr std::string_view kBody300 =
    R"({"id":"ch_3MmlLrLkdIwHu7ix0snN0B15","object":"charge","amount":1099,"amount_captured":1099,"currency":"usd",)"
    R"("description":"Rocket Rides, one way","status":"succeeded","paid":true,"captured":true,"customer":"cus_9s6XKzk",)"
    R"("receipt_url":"https://pay.example.com/receipts/CAcaFwoVYWNjdF8xTTJKVGtMa2RJd0h1N2l4","livemode":false})";

RecordId id_of(std::uint64_t number) {
  RecordId id;
  for (std::size_t word = 0; word < 4; ++word) {
    const std::uint64_t value = mixed(number * 4 + word);
    std::memcpy(id.bytes.data() + 8 * word, &value, sizeof value);
  }
  return id;
}

} // namespace

void stop(std::string_view why) {
  fmt::print(stderr, "bench: {}\n", why);
  std::exit(1);
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

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

struct PairLoad::Event {
  RecordId id;
  std::uint64_t fence; // 0: the pair is done
};

struct PairLoad::Loop {
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

PairLoad::PairLoad(Store& store, std::uint64_t first, std::uint64_t pairs, Millis time)
    : store_(store), next_(first), end_(first + pairs), time_(time) {}

PairLoad::~PairLoad() = default;

double PairLoad::run(std::size_t in_flight, std::size_t submitters) {
  const Clock::time_point start = Clock::now();
  until_ = time_ == Millis::max() ? Clock::time_point::max() : start + time_;
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

bool PairLoad::start_claim(Loop& loop) {
  if (until_ != Clock::time_point::max() && Clock::now() >= until_) return false;
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

void PairLoad::start_complete(Loop& loop, const Event& event) {
  store_.complete({event.id, event.fence}, charge_response(), [&loop, id = event.id](Result<FenceAnswer> answer) {
    if (!answer) stop(answer.fault().message);
    if (*answer != FenceAnswer::done) stop("a completion was refused");
    loop.post({id, 0});
  });
}

void PairLoad::drive(Loop& loop, std::size_t in_flight) {
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
        continue;
      }
      done_.fetch_add(1, std::memory_order_relaxed);
      if (!start_claim(loop)) --loop.running;
    }
  }
}

} // namespace oncekey::bench
