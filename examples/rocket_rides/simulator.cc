#include "simulator.h"

#include <boost/json.hpp>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <random>
#include <thread>
#include <utility>

namespace rides {
namespace {

namespace json = boost::json;

constexpr std::chrono::seconds kReplyTimeout{30};
// Between two tries when the API does not say how long to wait, or cannot be reached.
constexpr std::chrono::milliseconds kRetryWait{200};

bool is_final(int status) { return status < 500 && status != 409 && status != 429; }

std::chrono::milliseconds wait_before_retry(const std::optional<HttpReply>& reply) {
  const auto after = reply ? reply->headers.get("Retry-After") : std::nullopt;
  return after ? std::chrono::seconds(std::min(10, std::atoi(std::string(*after).c_str()))) : kRetryWait;
}

} // namespace

Simulator::Simulator(SimulatorOptions options) : options_(std::move(options)) {
  std::mt19937 random(options_.seed);
  const auto chance = [&](int percent) { return std::uniform_int_distribution<int>(0, 99)(random) < percent; };
  const auto place = [&] {
    return json::object{{"lat", std::uniform_int_distribution<int>(-90'0000, 90'0000)(random) / 1e4},
                        {"lon", std::uniform_int_distribution<int>(-180'0000, 180'0000)(random) / 1e4}};
  };
  for (int number = 0; number < options_.rides; ++number) {
    Booking booking;
    booking.key = "booking-" + std::to_string(options_.seed) + "-" + std::to_string(number);
    booking.user = chance(options_.bobs_percent) ? "bob" : "amy";
    booking.twice = chance(options_.doubles_percent);
    json::object body;
    body["origin"] = place();
    body["target"] = place();
    booking.body = json::serialize(body);
    bookings_.push_back(std::move(booking));
  }
}

SimulatorReport Simulator::book(const std::function<void(int)>& on_answer) {
  Run run;
  std::atomic<std::size_t> next = 0;
  std::atomic<int> over = 0;
  const auto client = [&] {
    for (std::size_t at = next++; at < bookings_.size(); at = next++) {
      std::jthread second_click;
      if (bookings_[at].twice) second_click = std::jthread([&, at] { ask_and_note(bookings_[at], run); });
      ask_and_note(bookings_[at], run);
      const int count = ++over;
      if (on_answer) on_answer(count);
    }
  };
  std::vector<std::jthread> clients;
  for (int i = 0; i < options_.clients; ++i) clients.emplace_back(client);
  clients.clear();

  for (const Booking& booking : bookings_) {
    const auto answered = run.statuses.find(booking.key);
    const int status = answered == run.statuses.end() ? 0 : answered->second;
    SimulatorReport& report = run.report;
    ++(status == 201 ? report.booked : status == 402 ? report.declined : status == 0 ? report.left : report.refused);
  }
  return run.report;
}

void Simulator::ask_and_note(const Booking& booking, Run& run) {
  int retries = 0;
  const auto answer = ask(booking, retries);
  const std::lock_guard lock(mutex_);
  run.report.retries += retries;
  if (!answer) return;
  run.report.replayed += answer->replayed ? 1 : 0;
  run.statuses[booking.key] = answer->status;
  const Answer& first = answers_.try_emplace(booking.key, *answer).first->second;
  if (first.status != answer->status || first.body != answer->body) ++run.report.differing;
  if (options_.log.empty()) return;
  const json::object line{{"key", booking.key},
                          {"user", booking.user},
                          {"status", answer->status},
                          {"body", answer->body},
                          {"replayed", answer->replayed}};
  std::ofstream(options_.log, std::ios::app) << json::serialize(line) << std::endl;
}

std::optional<Simulator::Answer> Simulator::ask(const Booking& booking, int& retries) const {
  const HttpClient api(options_.api, kReplyTimeout);
  oncekey::Headers headers;
  headers.add("Authorization", "Bearer " + booking.user);
  headers.add("Content-Type", "application/json");
  headers.add("Idempotency-Key", booking.key);
  const auto give_up_at = std::chrono::steady_clock::now() + options_.patience;
  for (;; ++retries) {
    std::optional<HttpReply> reply;
    try {
      reply = api.post("/rides", headers, booking.body);
    } catch (const NoReply&) {
    }
    if (reply && is_final(reply->status)) {
      return Answer{reply->status, reply->body, reply->headers.has("Idempotent-Replayed")};
    }
    const auto wait = wait_before_retry(reply);
    if (std::chrono::steady_clock::now() + wait >= give_up_at) return std::nullopt;
    std::this_thread::sleep_for(wait);
  }
}

} // namespace rides
