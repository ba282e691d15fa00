#include "admin/token_guesses.h"

#include "base/shares.h"

#include <algorithm>

namespace oncekey {

std::chrono::milliseconds TokenGuesses::wrong(std::string_view peer, Moment now) {
  std::string guesser = party_of_address(peer);
  auto at = guesses_.find(guesser);
  if (at == guesses_.end()) {
    if (guesses_.size() >= kAddressesMax)
      std::erase_if(guesses_, [&](const auto& entry) { return now - entry.second.last >= kForgottenAfter; });
    if (guesses_.size() >= kAddressesMax)
      guesses_.erase(std::min_element(guesses_.begin(), guesses_.end(),
                                      [](const auto& a, const auto& b) { return a.second.last < b.second.last; }));
    at = guesses_.emplace(std::move(guesser), Guesses{}).first;
  } else if (now - at->second.last >= kForgottenAfter) {
    at->second = Guesses{};
  }
  Guesses& guesses = at->second;
  guesses.last = now;
  const std::chrono::milliseconds delay = guesses.next_delay;
  guesses.next_delay = std::min(2 * delay, kLongestDelay);
  return delay;
}

} // namespace oncekey
