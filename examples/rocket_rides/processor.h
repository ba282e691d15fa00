// A stand-in for a payment processor, with idempotency keys of its own and all the bad days of a real one.
//
//   POST /charges   {"amount": 2000, "currency": "usd", "customer": "cus_amy", "ride": 7}, with an Idempotency-Key
//                   201 {"id": "ch_000001", …}; 402 for customers named cus_…declined
//                   the same key again: the same answer, marked Idempotent-Replayed: true, and nothing is charged
//                   the same key while the first is at work: 409; the same key with another body: 400
//                   500, or a lost connection, now and then: before or after the charge was made
//   GET  /charges   all charges that were made
//   GET  /counts    how often what happened
//
// Keys are remembered for a day, as at Stripe: a call that comes later is a new charge.
#pragma once

#include "faults.h"
#include "http.h"

#include <boost/json.hpp>

#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace rides {

struct ProcessorRules {
  std::chrono::milliseconds latency{0}; // half of it before the charge, half after
  int errors_percent = 0;
  int drops_percent = 0;
  std::chrono::milliseconds key_memory = std::chrono::hours(24);
  unsigned seed = 1;
};

class Processor {
 public:
  explicit Processor(const ProcessorRules& rules)
      : rules_(rules), dice_(rules.errors_percent, rules.drops_percent, rules.seed) {}

  // Nothing: the connection is to be lost.
  std::optional<HttpReply> answer(const HttpRequest& request);

 private:
  struct Remembered {
    std::string order;
    std::chrono::steady_clock::time_point since;
    bool at_work = true;
    std::optional<HttpReply> reply;
  };
  struct Counts {
    std::int64_t requests = 0, charges = 0, declined = 0, replayed = 0, conflicts = 0, errors = 0, dropped = 0;
  };

  std::optional<HttpReply> charge(const HttpRequest& request);
  std::optional<HttpReply> refuse_key(const std::string& key, const std::string& order);
  HttpReply decide(const std::string& key, const std::string& order);
  void leave(const std::string& key);
  HttpReply list() const;
  HttpReply show_counts() const;

  const ProcessorRules rules_;
  Dice dice_;
  mutable std::mutex mutex_;
  std::map<std::string, Remembered> keys_;
  boost::json::array charges_;
  Counts counts_;
};

} // namespace rides
