#include "gateway/places.h"

namespace oncekey {

std::optional<AccountPlaces::Place> AccountPlaces::enter(const RateBucketId& account, std::uint32_t most) {
  Shard& shard = shard_of(account);
  const std::lock_guard lock(shard.mutex);
  const auto found = shard.taken.try_emplace(account, 0).first;
  if (found->second >= most) return std::nullopt;
  ++found->second;
  return Place(*this, account);
}

void AccountPlaces::leave(const RateBucketId& account) {
  Shard& shard = shard_of(account);
  const std::lock_guard lock(shard.mutex);
  const auto found = shard.taken.find(account);
  if (found != shard.taken.end() && --found->second == 0) shard.taken.erase(found);
}

} // namespace oncekey
