#include "base/shares.h"

#include "base/enum_name.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace oncekey {
namespace {

using Seconds = std::chrono::duration<double>;

double drained(double level_bytes, std::uint64_t per_hour, Seconds passed) {
  return std::max(0.0, level_bytes - static_cast<double>(per_hour) / 3600 * passed.count());
}

} // namespace

std::string_view to_string(Resource resource) { return enum_name(resource); }

Parties::Ref Parties::join(std::string_view name) {
  Shard& shard = shard_of(name);
  const std::lock_guard lock(shard.mutex);
  auto found = shard.parties.find(name);
  if (found == shard.parties.end()) {
    if (shard.parties.size() >= shard_max_) make_room(shard);
    found = shard.parties.emplace(std::string(name), std::make_unique<Party>(std::string(name))).first;
  }
  return Ref(*found->second);
}

// The party stays until its place is needed: the next request of the same caller is likely to come soon.
void Parties::leave(Party& party) { party.refs_.fetch_sub(1, std::memory_order_release); }

std::size_t Parties::size() const {
  std::size_t sum = 0;
  for (const Shard& shard : shards_) {
    const std::lock_guard lock(shard.mutex);
    sum += shard.parties.size();
  }
  return sum;
}

// Forgets the parties with the lowest levels, a quarter of the shard at a time. A caller that comes under ever new
// names pushes out its own earlier names, and not every request walks over all parties.
void Parties::make_room(Shard& shard) const {
  std::vector<double> levels;
  for (const auto& [name, party] : shard.parties) {
    if (party->unused()) levels.push_back(party->level_bytes_);
  }
  if (levels.empty()) return;
  const auto quarter = levels.begin() + static_cast<std::ptrdiff_t>(levels.size() / 4);
  std::nth_element(levels.begin(), quarter, levels.end());
  const double highest = *quarter;
  std::erase_if(shard.parties,
                [&](const auto& entry) { return entry.second->unused() && entry.second->level_bytes_ <= highest; });
}

void Shares::add_to_level(Party& party, std::uint64_t bytes, std::uint64_t per_hour, Party::Instant now) {
  const std::lock_guard lock(party.level_mutex_);
  party.level_bytes_ = drained(party.level_bytes_, per_hour, now - party.level_at_) + static_cast<double>(bytes);
  party.level_at_ = now;
}

bool Shares::level_is_over(Party& party, std::uint64_t per_hour, Party::Instant now) {
  const std::lock_guard lock(party.level_mutex_);
  return drained(party.level_bytes_, per_hour, now - party.level_at_) > static_cast<double>(per_hour);
}

Grant Holding::try_add(std::uint64_t amount) {
  const ShareLimit& limit = shares_->limit(resource_);
  const std::uint64_t all = shares_->counter(resource_).fetch_add(amount, std::memory_order_relaxed) + amount;
  const auto of = [&](Party* party) {
    return party == nullptr ? 0 : party->of(resource_).fetch_add(amount, std::memory_order_relaxed) + amount;
  };
  const std::uint64_t of_address = of(address_);
  const std::uint64_t of_account = of(account_);
  Grant grant = Grant::given;
  if (all > limit.all) {
    grant = Grant::all_used;
  } else if (all > limit.scarce_from) {
    if (of_address > limit.per_address) grant = Grant::address_over;
    if (of_account > limit.per_account) grant = Grant::account_over;
  }
  if (grant == Grant::given) {
    held_ += amount;
  } else {
    count(0 - amount);
  }
  return grant;
}

void Holding::add(std::uint64_t amount) {
  count(amount);
  held_ += amount;
}

void Holding::let_go() {
  if (held_ > 0) count(0 - std::exchange(held_, 0));
}

void Holding::count(std::uint64_t change) {
  shares_->counter(resource_).fetch_add(change, std::memory_order_relaxed);
  if (address_ != nullptr) address_->of(resource_).fetch_add(change, std::memory_order_relaxed);
  if (account_ != nullptr) account_->of(resource_).fetch_add(change, std::memory_order_relaxed);
}

std::string party_of_address(std::string_view address) {
  const std::string text(address.substr(0, address.find('%'))); // without the zone of a link-local address
  in6_addr v6{};
  if (text.find(':') == std::string::npos || ::inet_pton(AF_INET6, text.c_str(), &v6) != 1) return std::string(address);
  char shown[INET6_ADDRSTRLEN] = {};
  if (IN6_IS_ADDR_V4MAPPED(&v6)) {
    ::inet_ntop(AF_INET, v6.s6_addr + 12, shown, sizeof shown);
    return shown;
  }
  std::memset(v6.s6_addr + 8, 0, 8);
  ::inet_ntop(AF_INET6, &v6, shown, sizeof shown);
  return std::string(shown) + "/64";
}

} // namespace oncekey
