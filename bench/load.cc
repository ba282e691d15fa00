#include "load.h"

#include "gateway/await_store.h"

#include <fmt/format.h>

#include <sys/resource.h>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

namespace oncekey::bench {
namespace {

constexpr std::chrono::milliseconds kRetryAfter{10};

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

double used_micros(int whose) {
  rusage usage{};
  getrusage(whose, &usage);
  return 1e6 * static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

} // namespace

void stop(std::string_view why) {
  fmt::print(stderr, "bench: {}\n", why);
  std::exit(1);
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double processor_micros() { return used_micros(RUSAGE_SELF); }

double thread_micros() { return used_micros(RUSAGE_THREAD); }

double machine_micros() {
  std::ifstream file("/proc/stat");
  std::string cpu;
  double user = 0, nice = 0, system = 0, idle = 0, waits = 0, interrupts = 0, soft_interrupts = 0;
  file >> cpu >> user >> nice >> system >> idle >> waits >> interrupts >> soft_interrupts;
  return (user + nice + system + interrupts + soft_interrupts) * 1e6 / static_cast<double>(::sysconf(_SC_CLK_TCK));
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

void CallTimes::add(Clock::duration taken) {
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(taken).count();
  ++counts_[std::min(static_cast<std::size_t>(micros), kMicrosMax)];
  ++calls_;
}

double CallTimes::quantile(double part) const {
  std::uint64_t seen = 0;
  for (std::size_t micros = 0; micros < counts_.size(); ++micros) {
    seen += counts_[micros];
    if (static_cast<double>(seen) >= part * static_cast<double>(calls_)) return static_cast<double>(micros);
  }
  return static_cast<double>(kMicrosMax);
}

double PairLoad::run(std::size_t in_flight, LogWriter writer) {
  Loop loop;
  store_.write_from(writer == LogWriter::loop ? &loop : nullptr);
  const Clock::time_point start = Clock::now();
  until_ = time_ == Millis::max() ? Clock::time_point::max() : start + time_;
  running_ = in_flight;
  for (std::size_t i = 0; i < in_flight; ++i) spawn(make_pairs(loop));
  loop.run_until([this] { return running_ == 0; });
  const double seconds = seconds_since(start);
  store_.write_from(nullptr); // the loop goes before the store
  return seconds;
}

Task<void> PairLoad::make_pairs(Loop& loop) {
  while (next_ < end_ && Clock::now() < until_) {
    const std::uint64_t number = next_++;
    if (before_each_) before_each_(number);
    const ClaimRequest request = claim_of(number);
    const RecordId id = request.id;
    Clock::time_point begun = Clock::now();
    Result<ClaimAnswer> answer =
        co_await await_store<ClaimAnswer>(loop, [&](auto done) { store_.claim(request, std::move(done)); });
    while (retries_ && !answer && answer.fault().kind == FaultKind::unavailable) {
      ++refused_;
      co_await sleep_for(loop, kRetryAfter);
      begun = Clock::now();
      answer = co_await await_store<ClaimAnswer>(loop, [&](auto done) { store_.claim(request, std::move(done)); });
    }
    if (!answer) stop("a claim failed: " + answer.fault().message);
    const Claimed* const claimed = std::get_if<Claimed>(&*answer);
    if (claimed == nullptr) stop("a new key was found claimed");
    const Clock::time_point owned = Clock::now();
    call_times_.add(owned - begun);

    const Ownership owner{id, claimed->fence, claimed->token};
    const Result<FenceAnswer> completed = co_await await_store<FenceAnswer>(
        loop, [&](auto done) { store_.complete(owner, charge_response(), std::move(done)); });
    if (!completed) stop("a completion failed: " + completed.fault().message);
    if (*completed != FenceAnswer::done) stop("a completion was refused");
    call_times_.add(Clock::now() - owned);
    ++done_;
  }
  --running_;
}

} // namespace oncekey::bench
