#include "gateway/trust.h"

#include "config/identity_files.h"
#include "gateway/shared.h"

namespace oncekey {
namespace {

// Longer names than this are not kept in memory between requests; they are verified each time.
constexpr std::size_t kRememberedBytesMax = 512;

std::int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::size_t size_of(const VerifiedToken& token) {
  std::size_t size = token.issuer ? token.issuer->size() : 0;
  for (const TokenClaim& claim : token.claims) size += claim.name.size() + claim.value.size();
  return size;
}

// The item of that name; null if there is none.
template <class Owned>
Owned* find_source(const std::vector<std::unique_ptr<Owned>>& list, const std::string& name) {
  const auto found = std::find_if(list.begin(), list.end(), [&](const auto& item) { return item->source == name; });
  return found == list.end() ? nullptr : found->get();
}

template <class Owned>
void add_source(std::vector<std::unique_ptr<Owned>>& list, const std::string& name) {
  if (!name.empty() && find_source(list, name) == nullptr) list.push_back(std::make_unique<Owned>(name));
}

bool has_tokens(const Policy& policy) {
  return std::any_of(policy.scope.begin(), policy.scope.end(),
                     [](const ScopeSource& source) { return source.kind == ScopeSource::Kind::jwt; });
}

} // namespace

bool TrustedKeys::ask_for_newer(MonotonicTime now) {
  if (!fetch_) return false;
  if (asked_.load() || failing_.load()) return true;
  const auto ticks = [](MonotonicTime time) { return static_cast<std::int64_t>(time.time_since_epoch().count()); };
  std::int64_t again_at = ask_again_at_.load();
  if (ticks(now) < again_at) return false;
  // Of several that ask at the same moment, one fetches and all are told to come again.
  if (ask_again_at_.compare_exchange_strong(again_at, ticks(now + kAskEvery))) {
    asked_ = true;
    fetch_();
  }
  return true;
}

Trust::Trust(const Config& config) {
  for (const Route& route : config.routes) {
    const Policy& policy = route.policy;
    if (has_tokens(policy)) add_source(keys, policy.tokens.keys);
    add_source(accounts, policy.accounts);
  }
}

std::optional<RouteTrust> Trust::of(const Policy& policy) const {
  RouteTrust trust;
  for (const ScopeSource& source : policy.scope) {
    if (source.kind == ScopeSource::Kind::jwt) trust.claims.push_back(source.name);
  }
  if (!trust.claims.empty() && !policy.tokens.keys.empty()) {
    trust.keys = find_source(keys, policy.tokens.keys);
    if (trust.keys == nullptr) return std::nullopt;
  }
  if (!policy.accounts.empty()) {
    trust.accounts = find_source(accounts, policy.accounts);
    if (trust.accounts == nullptr) return std::nullopt;
  }
  return trust;
}

Status Trust::load_files() {
  for (const auto& trusted : keys) {
    const std::string path = jwks_path(trusted->source);
    if (path.empty()) continue;
    auto set = load_jwks(path);
    if (!set) return invalid(fmt::format("jwt_keys: {}", set.fault().message));
    trusted->sets.put(*std::move(set));
  }
  for (const auto& file : accounts) {
    auto read = load_accounts(file->source);
    if (!read) return invalid(fmt::format("accounts: {}", read.fault().message));
    file->accounts.put(*std::move(read));
  }
  return ok_status();
}

RequestCaller::RequestCaller(GatewayShared& shared, VerifiedTokens& verified, const Route& route,
                             const Exchange& exchange)
    : shared_(shared),
      verified_(verified),
      route_(route),
      trust_(route.state->trust),
      certificate_(exchange.certificate()) {
  if (trust_.accounts != nullptr) accounts_ = trust_.accounts->accounts.get();
}

Caller RequestCaller::view() const { return {trust_.keys != nullptr ? this : nullptr, certificate_, accounts_.get()}; }

const TokenVerdict& RequestCaller::judge(std::string_view token) const {
  if (!verdict_) verdict_ = look_at(token);
  return *verdict_;
}

TokenVerdict RequestCaller::look_at(std::string_view token) const {
  TrustedKeys& keys = *trust_.keys;
  const std::uint64_t generation = keys.sets.generation();
  const std::int64_t now = unix_now();
  const std::string_view parts[] = {"oncekey token 1", route_.state->rules_name, token};
  const HashBytes hash = shared_.hash.of(parts);
  TokenPlace& entry = verified_.of(hash);
  if (entry.generation == generation && entry.token == hash && now < entry.verified.expires + kTokenLeewaySeconds)
    return entry.verified;

  const auto set = keys.sets.get();
  if (!set) return Refusal{RefusalCode::jwks_unavailable, {}, std::chrono::seconds(1), {}};
  TokenJudgement judgement = judge_token(token, *set, route_.policy.tokens, trust_.claims, now);
  if (const auto* refused = std::get_if<RefusedToken>(&judgement))
    return Refusal{RefusalCode::token_invalid, std::string(refused->reason), std::nullopt, {}};
  if (std::holds_alternative<UnknownTokenKey>(judgement)) {
    if (keys.ask_for_newer(std::chrono::steady_clock::now()))
      return Refusal{RefusalCode::jwks_unavailable,
                     "The token's key may be a new one; the keys are being fetched.",
                     std::chrono::seconds(1),
                     {}};
    return Refusal{
        RefusalCode::token_invalid, "The token names a key that its issuer does not have.", std::nullopt, {}};
  }
  VerifiedToken& verified = std::get<VerifiedToken>(judgement);
  if (size_of(verified) <= kRememberedBytesMax) entry = {hash, generation, verified};
  return std::move(verified);
}

} // namespace oncekey
