// trust: what callers are told apart by, beyond their headers: keys of token issuers, and accounts of credentials.
//
// Requests read it on every thread; one keeper (trust_keeper.h) replaces it when a file changes or a key set was
// fetched. A reader keeps what it took for as long as it needs it.
#pragma once

#include "base/crypto.h"
#include "config/config.h"
#include "core/caller.h"
#include "net/loop.h"

namespace oncekey {

struct GatewayShared;
class Exchange;

// The newest of something, for readers on other threads.
template <class T>
class Newest {
 public:
  // Null until there is one.
  std::shared_ptr<const T> get() const {
    const std::lock_guard lock(mutex_);
    return newest_;
  }
  void put(T made) {
    auto next = std::make_shared<const T>(std::move(made));
    const std::lock_guard lock(mutex_);
    newest_.swap(next);
    generation_.fetch_add(1, std::memory_order_release);
  }
  // Changes with every put().
  std::uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const T> newest_;
  std::atomic<std::uint64_t> generation_{0};
};

// The keys behind one `jwt_keys`.
class TrustedKeys {
 public:
  explicit TrustedKeys(std::string keys_source) : source(std::move(keys_source)) {}

  const std::string source; // as configured
  Newest<JwkSet> sets;

  // A token names a key that is not in the set. True if a newer set is on its way, or cannot be had at the moment: the
  // token may prove to be good. Asks for one at most once in kAskEvery, since a caller can invent names. From any
  // thread.
  bool ask_for_newer(MonotonicTime now);
  static constexpr std::chrono::seconds kAskEvery{30};

  // For the keeper. `fetch` is called on the asker's thread; set before requests come.
  void on_asked(std::function<void()> fetch) { fetch_ = std::move(fetch); }
  void fetched(bool failed) {
    failing_ = failed;
    asked_ = false;
  }

 private:
  std::function<void()> fetch_; // none for a file
  std::atomic<bool> asked_{false};
  std::atomic<bool> failing_{false};
  std::atomic<std::int64_t> ask_again_at_{0}; // on the steady clock
};

struct AccountsFile {
  explicit AccountsFile(std::string file_path) : source(std::move(file_path)) {}
  const std::string source; // its path
  Newest<Accounts> accounts;
};

// What one route uses of it.
struct RouteTrust {
  TrustedKeys* keys = nullptr;
  AccountsFile* accounts = nullptr;
  std::vector<std::string_view> claims; // those of the scope
};

class Trust {
 public:
  explicit Trust(const Config& config);

  // Reads the files. A fault says which cannot be used and why; the gateway must not start then.
  Status load_files();
  // What a route with this policy uses. Nothing if it names keys or accounts that the gateway has not begun with. Views
  // into the policy.
  std::optional<RouteTrust> of(const Policy& policy) const;
  bool empty() const { return keys.empty() && accounts.empty(); }

  std::vector<std::unique_ptr<TrustedKeys>> keys;
  std::vector<std::unique_ptr<AccountsFile>> accounts;
};

// A bounded memory by hash: one place for each, and a newer one takes it.
template <class Entry, std::size_t kPlaces>
class PlacesByHash {
 public:
  Entry& of(const HashBytes& hash) {
    if (places_.empty()) places_.resize(kPlaces);
    std::uint64_t number = 0;
    std::memcpy(&number, hash.data(), sizeof number);
    return places_[number % kPlaces];
  }

 private:
  std::vector<Entry> places_; // empty until the first is asked for
};

// Tokens that were verified lately, so that a replay does not pay for a signature. Belongs to one thread. Only tokens
// that hold get in: a forger cannot push others out.
struct TokenPlace {
  HashBytes token{}; // keyed hash of route and token
  std::uint64_t generation = 0;
  VerifiedToken verified;
};
using VerifiedTokens = PlacesByHash<TokenPlace, 1024>;

// Callers that the upstream has said yes to lately (`reauthorize_for`). Shared by all threads. A caller that lost its
// place is asked about again, which costs a call and grants nothing.
class Reauthorized {
 public:
  bool holds(const HashBytes& caller, MonotonicTime now) {
    const std::lock_guard lock(mutex_);
    const Place& place = places_.of(caller);
    return place.caller == caller && now < place.until;
  }
  void remember(const HashBytes& caller, MonotonicTime until) {
    const std::lock_guard lock(mutex_);
    places_.of(caller) = {caller, until};
  }

 private:
  struct Place {
    HashBytes caller{};
    MonotonicTime until;
  };
  std::mutex mutex_;
  PlacesByHash<Place, 4096> places_;
};

// Who sends one request. Tokens are judged when they are first asked for, and once.
class RequestCaller final : private TokenJudge {
 public:
  RequestCaller(GatewayShared& shared, VerifiedTokens& verified, const Route& route, const Exchange& exchange);
  RequestCaller& operator=(RequestCaller&&) = delete;

  // Valid as long as this is.
  Caller view() const;

 private:
  const TokenVerdict& judge(std::string_view token) const override;
  TokenVerdict look_at(std::string_view token) const;

  GatewayShared& shared_;
  VerifiedTokens& verified_;
  const Route& route_;
  const RouteTrust& trust_;
  const CertificateName* certificate_;
  std::shared_ptr<const Accounts> accounts_;
  mutable std::optional<TokenVerdict> verdict_; // a request has one token
};

} // namespace oncekey
