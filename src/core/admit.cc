#include "core/admit.h"

#include "core/scope.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace oncekey {
namespace {

bool method_matters(const Policy& policy, std::string_view method) {
  return std::find(policy.methods.begin(), policy.methods.end(), method) != policy.methods.end();
}

// Fields named in Connection are taken out on the way. What a record is found by must reach the upstream, or the two
// would see different accounts and requests behind one key.
std::optional<Refusal> stripped_on_the_way(const Policy& policy, const Headers& headers) {
  if (!headers.has("Connection")) return std::nullopt;
  std::optional<Refusal> refused;
  const auto refuse_if_named = [&](const std::string& name) {
    for (std::size_t i = 0; i < headers.size() && !refused; ++i) {
      const Field field = headers[i];
      if (!equal_ignoring_case(field.name, "Connection")) continue;
      for_each_list_item(field.value, [&](std::string_view item) {
        if (!equal_ignoring_case(item, name)) return;
        refused = Refusal{RefusalCode::key_in_connection, "The header is " + name + "."};
      });
    }
  };
  for (const ScopeSource& source : policy.scope) {
    if (source.kind == ScopeSource::Kind::header) refuse_if_named(source.name);
  }
  for (const std::string& name : policy.fingerprint_headers) refuse_if_named(name);
  return refused;
}

// An account that anyone can claim has no share: others would use it up.
std::optional<AccountId> counted_account(const Policy& policy, const Requester& requester, std::uint64_t seed) {
  const auto* const principal = std::get_if<Principal>(&requester.principal());
  return principal != nullptr && believes_callers(policy) ? account_of(*principal, seed) : std::nullopt;
}

} // namespace

Refusal key_missing(const Policy& policy) {
  Refusal refusal{RefusalCode::key_missing};
  for (const KeySource& source : policy.key_from) {
    if (source.kind == KeySource::Kind::header) {
      refusal.detail = "Send it in the header " + source.name + ".";
      break;
    }
  }
  return refusal;
}

const std::variant<Principal, Refusal>& Requester::principal() const {
  if (!found_) found_ = find_principal(policy_, headers_, caller_);
  return *found_;
}

ScreenAnswer screen(const Policy& policy, const RequestView& request, const Requester& requester,
                    std::uint64_t account_seed) {
  if (!method_matters(policy, request.method)) return Unprotected{};
  auto looked = key_in_head(policy, request.headers);
  if (auto* refused = std::get_if<Refusal>(&looked)) return std::move(*refused);
  HeadKey& key = std::get<HeadKey>(looked);
  const bool absent = std::holds_alternative<NoKey>(key.key);
  if (absent && !key.maybe_in_body) {
    if (policy.key == MissingKey::required) return key_missing(policy);
    return Unprotected{};
  }
  // A request that may prove to have no key needs no principal. If it has one, the body counts in its share.
  if (!absent || policy.key == MissingKey::required) {
    if (auto refused = stripped_on_the_way(policy, request.headers)) return *std::move(refused);
    if (const auto* refused = std::get_if<Refusal>(&requester.principal())) return *refused;
  }
  return ReadBody{counted_account(policy, requester, account_seed), std::move(key)};
}

AdmitAnswer admit(const Policy& policy, const RequestView& request, const Requester& requester, HeadKey key,
                  std::string_view body, const KeyedHash& hash) {
  FoundKey found = find_key(policy, request.headers, std::move(key), body);
  if (auto* refused = std::get_if<Refusal>(&found)) return std::move(*refused);
  if (std::holds_alternative<NoKey>(found)) {
    if (policy.key == MissingKey::required) return key_missing(policy);
    return Unprotected{};
  }
  if (auto refused = stripped_on_the_way(policy, request.headers)) return *std::move(refused);
  if (const auto* refused = std::get_if<Refusal>(&requester.principal())) return *refused;
  const Principal& principal = std::get<Principal>(requester.principal());

  Admitted admitted;
  admitted.fingerprint = fingerprint_of(policy, request, body, hash);
  if (policy.redact) admitted.account = account_tag(principal, hash);
  if (auto* client = std::get_if<ClientKey>(&found)) {
    admitted.key = std::move(client->text);
    admitted.id = record_id(policy, principal, request, KeyKind::client, admitted.key, hash);
    admitted.retention = policy.retention;
  } else {
    const auto& bytes = admitted.fingerprint.bytes;
    const std::string_view made(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    admitted.id = record_id(policy, principal, request, KeyKind::fingerprint, made, hash);
    admitted.retention = policy.window;
  }
  return admitted;
}

} // namespace oncekey
