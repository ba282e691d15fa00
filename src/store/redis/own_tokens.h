// OwnTokens: the tokens of claims that were made here and are not settled yet.
//
// A replica that becomes the master without the last writes, and whose clock is behind that of the lost master by
// longer than the failover took, may give a fence again. An owner from before would find its own fence there; the token
// in the record tells whose it is.
#pragma once

#include "core/store.h"

#include <oncekey/record.h>

#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

namespace oncekey::redis {

// Safe to use from several threads.
class OwnTokens {
 public:
  void add(const Ownership& owner, const ClaimToken& token) {
    if (token == ClaimToken{}) return; // nobody's
    const std::lock_guard lock(mutex_);
    if (young_.size() >= kGenerationMax) old_ = std::exchange(young_, {});
    young_.insert_or_assign(owner.id, Owned{owner.fence, token});
  }
  std::optional<ClaimToken> find(const Ownership& owner) const {
    const std::lock_guard lock(mutex_);
    for (const Owners* const owners : {&young_, &old_}) {
      const auto found = owners->find(owner.id);
      if (found != owners->end() && found->second.fence == owner.fence) return found->second.token;
    }
    return std::nullopt;
  }
  void forget(const Ownership& owner) {
    const std::lock_guard lock(mutex_);
    for (Owners* const owners : {&young_, &old_}) {
      const auto found = owners->find(owner.id);
      if (found != owners->end() && found->second.fence == owner.fence) owners->erase(found);
    }
  }

 private:
  struct Owned {
    std::uint64_t fence = 0;
    ClaimToken token{};
  };
  using Owners = std::unordered_map<RecordId, Owned>;
  // More than a gateway has in progress. Those that are never settled go with their generation, and what is no longer
  // known here is told apart by its fence alone.
  static constexpr std::size_t kGenerationMax = 65536;

  mutable std::mutex mutex_;
  Owners young_;
  Owners old_;
};

} // namespace oncekey::redis
