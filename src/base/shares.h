// Shares: who holds how much of what is bounded.
//
// Connections, bytes of bodies in memory, calls to the upstream, WebSockets and waiting requests each have a limit. A
// caller that takes all of one takes the service from every other caller. So everything held is counted three times: in
// all, for the client's address, and for the account where it is known. One rule applies to addresses and accounts
// alike:
//
//   While less than half of a limit is in use, a party may hold any of it. Beyond half, a party that holds its share
//   (a quarter, unless the configuration says otherwise) gets no more.
//
// One address alone can therefore work with half of everything, as a proxy does that is missing in trusted_proxies,
// and a second caller still finds room. The cap on connections is stricter: it applies from the first connection on,
// because a connection costs nothing to open and keep.
//
// What a party adds to the store is counted too, as a level that drains at the rate of its hourly share.
//
// Threads. Everything here may be called from any thread. A Party stays in place while a Parties::Ref keeps it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace oncekey {

// `places` are calls to the upstream; `tunnels` are the WebSockets among them.
enum class Resource : std::uint8_t { connections, buffered_bytes, places, tunnels, waiters };
inline constexpr std::size_t kResources = 5;
std::string_view to_string(Resource resource);

struct ShareLimit {
  std::uint64_t all = 0;
  std::uint64_t per_address = 0;
  std::uint64_t per_account = 0;
  std::uint64_t scarce_from = 0; // the shares apply once more than this is in use
};

// A client address or an account.
class Party {
 public:
  explicit Party(std::string name) : name_(std::move(name)) {}
  Party(const Party&) = delete;
  Party& operator=(const Party&) = delete;

  const std::string& name() const { return name_; }
  std::uint64_t held(Resource resource) const { return of(resource).load(std::memory_order_relaxed); }

 private:
  friend class Holding;
  friend class Parties;
  friend class Shares;
  using Instant = std::chrono::steady_clock::time_point;

  bool unused() const { return refs_.load(std::memory_order_acquire) == 0; }
  std::atomic<std::uint64_t>& of(Resource resource) { return held_[static_cast<std::size_t>(resource)]; }
  const std::atomic<std::uint64_t>& of(Resource resource) const { return held_[static_cast<std::size_t>(resource)]; }

  const std::string name_;
  std::array<std::atomic<std::uint64_t>, kResources> held_{};
  // The first reference is made under the table's lock alone, so that a party without any stays so while the lock is
  // held. Without a reference no thread changes the level.
  std::atomic<std::uint64_t> refs_ = 0;
  std::mutex level_mutex_;
  double level_bytes_ = 0;
  Instant level_at_{};
};

// All addresses, or all accounts. Memory is bounded: parties that hold nothing and whose level is low go first.
class Parties {
 public:
  // Some two hundred bytes each.
  static constexpr std::size_t kPartiesMax = std::size_t{1} << 16;

  class Ref {
   public:
    Ref() = default;
    Ref(Ref&& other) noexcept : party_(std::exchange(other.party_, nullptr)) {}
    Ref& operator=(Ref&& other) noexcept {
      std::swap(party_, other.party_);
      return *this;
    }
    ~Ref() {
      if (party_ != nullptr) leave(*party_);
    }
    Party* get() const { return party_; }
    // A second reference, without the table's lock: this one keeps the party in place meanwhile.
    Ref again() const { return party_ == nullptr ? Ref() : Ref(*party_); }

   private:
    friend class Parties;
    explicit Ref(Party& party) : party_(&party) { party.refs_.fetch_add(1, std::memory_order_relaxed); }
    Party* party_ = nullptr;
  };

  explicit Parties(std::size_t parties_max = kPartiesMax) : shard_max_(parties_max / kShards + 1) {}
  Ref join(std::string_view name);
  std::size_t size() const;

 private:
  static constexpr std::size_t kShards = 16; // enough that threads rarely meet on one lock
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view name) const { return std::hash<std::string_view>{}(name); }
  };
  struct Shard {
    mutable std::mutex mutex;
    std::unordered_map<std::string, std::unique_ptr<Party>, Hash, std::equal_to<>> parties;
  };
  Shard& shard_of(std::string_view name) { return shards_[Hash{}(name) % kShards]; }
  static void leave(Party& party);
  void make_room(Shard& shard) const;

  const std::size_t shard_max_;
  std::array<Shard, kShards> shards_;
};

enum class Grant {
  given,
  all_used,     // the limit itself is reached
  address_over, // the client's address holds its share
  account_over, // the account holds its share
};

class Shares {
 public:
  // In the order of Resource.
  explicit Shares(const std::array<ShareLimit, kResources>& limits) : limits_(limits) {}

  const ShareLimit& limit(Resource resource) const { return limits_[static_cast<std::size_t>(resource)]; }
  std::uint64_t in_use(Resource resource) const {
    return in_use_[static_cast<std::size_t>(resource)].load(std::memory_order_relaxed);
  }
  Parties& addresses() { return addresses_; }
  Parties& accounts() { return accounts_; }

  // What a party has added to a store that may grow by `per_hour` on its account.
  static void add_to_level(Party& party, std::uint64_t bytes, std::uint64_t per_hour, Party::Instant now);
  static bool level_is_over(Party& party, std::uint64_t per_hour, Party::Instant now);

 private:
  friend class Holding;
  std::atomic<std::uint64_t>& counter(Resource resource) { return in_use_[static_cast<std::size_t>(resource)]; }

  const std::array<ShareLimit, kResources> limits_;
  std::array<std::atomic<std::uint64_t>, kResources> in_use_{};
  Parties addresses_;
  Parties accounts_;
};

// A ticket: what one request or connection holds of one resource, given back when it is destroyed. The parties must
// outlive it; either may be null (an address in trusted_proxies is exempt, an account may not be known).
class Holding {
 public:
  Holding(Shares& shares, Resource resource, Party* address, Party* account = nullptr)
      : shares_(&shares), resource_(resource), address_(address), account_(account) {}
  Holding(Holding&& other) noexcept
      : shares_(other.shares_),
        resource_(other.resource_),
        address_(other.address_),
        account_(other.account_),
        held_(std::exchange(other.held_, 0)) {}
  Holding& operator=(Holding&&) = delete;
  ~Holding() { let_go(); }

  // Counts the amount if it is granted, and nothing otherwise.
  Grant try_add(std::uint64_t amount);
  // Counts the amount without asking: for something that exists already and cannot be refused any more.
  void add(std::uint64_t amount);
  void let_go();
  std::uint64_t held() const { return held_; }

 private:
  // Less by an amount is more by its negative: both wrap around.
  void count(std::uint64_t change);

  Shares* shares_;
  Resource resource_;
  Party* address_;
  Party* account_;
  std::uint64_t held_ = 0;
};

// The party an address belongs to: an IPv6 address by its /64, which one client usually has whole; an IPv4-mapped IPv6
// address as IPv4. Text that is not an address stands for itself.
std::string party_of_address(std::string_view address);

} // namespace oncekey
