// The payment processor as the application sees it: one call, and care about what its answers mean.
#pragma once

#include "book_ride.h"
#include "http.h"

#include <chrono>
#include <stdexcept>
#include <string>
#include <string_view>

namespace rides {

// The processor may have charged, or not, or was never asked. Never a final answer: the same call with the same key
// finds out.
class OutcomeUnknown : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class ProcessorClient {
 public:
  explicit ProcessorClient(std::string_view url, std::chrono::milliseconds timeout = std::chrono::seconds(10))
      : client_(url, timeout) {}

  // Throws OutcomeUnknown.
  ChargeDecision charge(const std::string& key, const ChargeOrder& order) const;

 private:
  HttpClient client_;
};

} // namespace rides
