// TokenGuesses: makes guessing the admin token slow, without slowing operators.
//
// Each wrong token from an address doubles the delay of its next refusal. Addresses are counted apart, so that no
// operator is slowed by what another address sends, and a right token is never delayed. A guesser with many connections
// gets as many tries in each stretch of the longest delay; the token's length makes that hopeless.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>

namespace oncekey {

class TokenGuesses {
 public:
  using Moment = std::chrono::steady_clock::time_point;

  static constexpr std::chrono::milliseconds kFirstDelay{100};
  static constexpr std::chrono::milliseconds kLongestDelay{5000};
  // After this long without a wrong token an address starts over.
  static constexpr std::chrono::seconds kForgottenAfter{600};
  // With more addresses, the one that was quiet the longest is forgotten.
  static constexpr std::size_t kAddressesMax = 1024;

  // Counts a wrong token from `peer`. Returns how long the refusal must wait. An IPv6 address stands for its /64, which
  // one customer of a provider has whole.
  std::chrono::milliseconds wrong(std::string_view peer, Moment now);

  std::size_t addresses() const { return guesses_.size(); }

 private:
  struct Guesses {
    std::chrono::milliseconds next_delay = kFirstDelay;
    Moment last;
  };

  std::unordered_map<std::string, Guesses> guesses_;
};

} // namespace oncekey
