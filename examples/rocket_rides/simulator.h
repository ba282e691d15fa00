// Riders: clients that book rides, retry with the same key as clients should, click twice, and compare the answers.
#pragma once

#include "http.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace rides {

struct SimulatorOptions {
  std::string api = "http://127.0.0.1:5004";
  int clients = 8;
  int rides = 100;
  // How long a rider goes on trying to get an answer to one booking. 0: one try.
  std::chrono::milliseconds patience = std::chrono::seconds(60);
  int bobs_percent = 10;    // riders whose card is declined
  int doubles_percent = 20; // bookings that are sent twice at the same time
  unsigned seed = 1;        // also part of the keys: another seed, other bookings
  std::string log;          // a file that gets a JSON line for every final answer
};

struct SimulatorReport {
  int booked = 0;   // 201
  int declined = 0; // 402
  int refused = 0;  // any other final answer, which a correct API gives none of
  int left = 0;     // no final answer within the patience
  int retries = 0;
  int replayed = 0;  // final answers that came from the record
  int differing = 0; // final answers to one key that were not the same: never
};

class Simulator {
 public:
  explicit Simulator(SimulatorOptions options);

  // All bookings, each until it has a final answer or the rider's patience is over. Calling it again sends the same
  // requests with the same keys, and expects the same answers. `on_answer` is told after each booking how many are
  // over.
  SimulatorReport book(const std::function<void(int)>& on_answer = {});

 private:
  struct Booking {
    std::string key, user, body;
    bool twice = false;
  };
  struct Answer {
    int status = 0;
    std::string body;
    bool replayed = false;
  };
  // One call of book(): what became of each key in it.
  struct Run {
    std::map<std::string, int> statuses;
    SimulatorReport report;
  };
  void ask_and_note(const Booking& booking, Run& run);
  std::optional<Answer> ask(const Booking& booking, int& retries) const;

  SimulatorOptions options_;
  std::vector<Booking> bookings_;
  std::mutex mutex_;
  std::map<std::string, Answer> answers_; // the first final answer of each key, of all runs
};

} // namespace rides
