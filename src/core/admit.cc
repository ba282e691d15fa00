#include "core/admit.h"

#include "core/fingerprint.h"
#include "core/key_source.h"
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
        refused = Refusal{RefusalCode::key_in_connection, "The header is " + name + ".", std::nullopt, {}};
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
ReadBody counted_for(const Policy& policy, Principal principal, std::uint64_t account_seed) {
  std::optional<AccountId> account;
  if (believes_callers(policy)) account = account_of(principal, account_seed);
  return {account, std::move(principal)};
}

} // namespace

Refusal key_missing(const Policy& policy) {
  Refusal refusal{RefusalCode::key_missing, {}, std::nullopt, {}};
  for (const KeySource& source : policy.key_from) {
    if (source.kind == KeySource::Kind::header) {
      refusal.detail = "Send it in the header " + source.name + ".";
      break;
    }
  }
  return refusal;
}

Screened screen(const Policy& policy, const RequestView& request, std::uint64_t account_seed) {
  if (!method_matters(policy, request.method)) return PassThrough{};
  auto looked = look_for_key(policy, request.headers);
  if (auto* refused = std::get_if<Refusal>(&looked)) return std::move(*refused);
  switch (std::get<KeyInHead>(looked)) {
    case KeyInHead::absent:
      if (policy.key == MissingKey::required) return key_missing(policy);
      return PassThrough{};
    case KeyInHead::unknown: {
      if (policy.key == MissingKey::required) break;
      // Without a key there is no need of a principal either; where there is one, the body counts in its share.
      auto named = find_principal(policy, request.headers, request.caller);
      auto* const account = std::get_if<Principal>(&named);
      return account == nullptr ? ReadBody{} : counted_for(policy, std::move(*account), account_seed);
    }
    case KeyInHead::present:
      break;
  }
  if (auto refused = stripped_on_the_way(policy, request.headers)) return *std::move(refused);
  auto principal = find_principal(policy, request.headers, request.caller);
  if (auto* refused = std::get_if<Refusal>(&principal)) return std::move(*refused);
  return counted_for(policy, std::move(std::get<Principal>(principal)), account_seed);
}

Admission admit(const Policy& policy, const RequestView& request, std::string_view body, const KeyedHash& hash,
                std::optional<Principal> named) {
  if (!method_matters(policy, request.method)) return PassThrough{};
  FoundKey found = find_key(policy, request.headers, body);
  if (auto* refused = std::get_if<Refusal>(&found)) return std::move(*refused);
  if (std::holds_alternative<NoKey>(found)) {
    if (policy.key == MissingKey::required) return key_missing(policy);
    return PassThrough{};
  }
  if (auto refused = stripped_on_the_way(policy, request.headers)) return *std::move(refused);
  if (!named) {
    auto answer = find_principal(policy, request.headers, request.caller);
    if (auto* refused = std::get_if<Refusal>(&answer)) return std::move(*refused);
    named = std::move(std::get<Principal>(answer));
  }
  const Principal& principal = *named;

  Admitted admitted;
  admitted.fingerprint = fingerprint_of(policy, request, body, hash);
  if (auto* key = std::get_if<ClientKey>(&found)) {
    admitted.key = std::move(key->text);
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
