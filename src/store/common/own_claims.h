// OwnClaims: the claims of this process that are not settled yet.
//
// A completion names a fence and an answer. To replay that answer without asking the store, the rest of the record is
// needed as well, and the claim had all of it.
#pragma once

#include "core/store.h"

#include <oncekey/record.h>

#include <algorithm>
#include <iterator>
#include <list>
#include <mutex>
#include <unordered_map>

namespace oncekey {

// More than a gateway has in progress. Beyond this the oldest go: claims whose owners gave them up and never came back
// to settle them gather at the end, and an answer without its claim is merely looked up in the store.
inline constexpr std::size_t kOwnClaimsMax = 65536;

// Safe to use from several threads.
class OwnClaims {
 public:
  // Not of takeovers, whose record has more of its first owner than the claim tells.
  void add(ClaimRequest request, const Claimed& claimed) {
    if (claimed.took_over) return;
    const std::lock_guard lock(mutex_);
    if (const auto known = by_id_.find(request.id); known != by_id_.end()) erase(known);
    if (claims_.size() >= kOwnClaimsMax) erase(by_id_.find(claims_.front().request.id));
    claims_.push_back({std::move(request), claimed});
    by_id_.emplace(claims_.back().request.id, std::prev(claims_.end()));
  }
  // The record as it was when it was claimed, once: it is settled now.
  std::optional<Record> take(const Ownership& owner) {
    const std::lock_guard lock(mutex_);
    const auto found = by_id_.find(owner.id);
    if (found == by_id_.end() || !is_of(*found->second, owner)) return std::nullopt;
    Record record = record_of(std::move(*found->second));
    erase(found);
    return record;
  }
  void forget(const Ownership& owner) { take(owner); }

 private:
  struct Claim {
    ClaimRequest request;
    Claimed claimed;
  };
  static bool is_of(const Claim& claim, const Ownership& owner) {
    return claim.claimed.fence == owner.fence && (owner.token == ClaimToken{} || claim.request.token == owner.token);
  }
  using ById = std::unordered_map<RecordId, std::list<Claim>::iterator>;
  void erase(ById::iterator known) {
    claims_.erase(known->second);
    by_id_.erase(known);
  }
  static Record record_of(Claim claim) {
    Record record;
    record.fingerprint = claim.request.fingerprint;
    record.fence = claim.claimed.fence;
    record.first_received = claim.claimed.now;
    // A lease that was renewed may have put it off since. Too early is harmless: then the store is asked.
    record.expires_at = claim.claimed.now + std::max(claim.request.retention, claim.request.lease);
    record.lease_until = claim.claimed.now + claim.request.lease;
    record.claimed_by = claim.request.token;
    record.context = std::move(claim.request.context);
    record.route = std::move(claim.request.route);
    record.key = std::move(claim.request.key);
    record.method = std::move(claim.request.method);
    record.target = std::move(claim.request.target);
    return record;
  }

  std::mutex mutex_;
  std::list<Claim> claims_; // the oldest first
  ById by_id_;
};

} // namespace oncekey
