#include "phases/core_rules.h"

#include "base/utf8.h"
#include "core/key.h"
#include "core/scope.h"

#include <fmt/format.h>

namespace oncekey::phases {
namespace {

// The rules that both kinds of policy have.
template <class From, class To>
To with_rules(const From& from, To to) {
  to.key_syntax = from.key_syntax;
  to.strict = from.strict;
  to.identity = from.identity;
  to.fingerprint = from.fingerprint;
  to.fingerprint_ignore = from.fingerprint_ignore;
  to.path_case = from.path_case;
  to.mismatch_status = from.mismatch_status;
  to.in_progress_status = from.in_progress_status;
  to.retention = from.retention;
  to.errors = from.errors;
  to.replay_set_cookie = from.replay_set_cookie;
  return to;
}

std::optional<RequestInvalid> unkeepable(const OperationRequest& request) {
  const std::pair<std::string_view, const std::string&> texts[] = {{"principal", request.principal},
                                                                   {"method", request.method},
                                                                   {"path", request.path},
                                                                   {"content type", request.content_type}};
  for (const auto& [name, text] : texts) {
    if (!is_utf8(text)) return RequestInvalid{fmt::format("the {} is not UTF-8", name)};
    if (text.find('\0') != std::string::npos) return RequestInvalid{fmt::format("the {} has a zero byte", name)};
  }
  return std::nullopt;
}

} // namespace

Policy policy_of(const RunnerPolicy& rules) {
  // What a library has no use for (upstreams, scopes, limits) stays as it is there.
  Policy policy = with_rules(rules, *policy_by_name("classic"));
  policy.key = MissingKey::required;
  return policy;
}

std::variant<RequestIdentity, KeyInvalid, RequestInvalid> identify(const Policy& policy,
                                                                   const OperationRequest& request,
                                                                   const KeyedHash& hash) {
  if (request.key.empty()) return KeyInvalid{KeyInvalid::Part::no_key, "the request has no key"};
  if (request.principal.empty()) return KeyInvalid{KeyInvalid::Part::principal, "the request names no principal"};
  if (auto refused = unkeepable(request)) return *std::move(refused);
  ParsedKey parsed = parse_key_header(policy.key_syntax, policy.strict, request.key);
  if (const auto* bad = std::get_if<BadKey>(&parsed)) return KeyInvalid{KeyInvalid::Part::key, bad->why};

  RequestIdentity identity;
  identity.key = std::get<std::string>(std::move(parsed));
  Headers headers;
  if (!request.content_type.empty()) headers.add("Content-Type", request.content_type);
  const RequestView view{request.method, request.path, headers};
  // The application has authenticated the caller; the name it gives is the whole principal.
  const ScopeSource source{ScopeSource::Kind::global, "principal", false};
  Principal principal;
  principal.parts.push_back({"application", &source, true, request.principal});
  identity.id = record_id(policy, principal, view, KeyKind::client, identity.key, hash);
  const Fingerprint asked = fingerprint_of(policy, view, request.compared.value_or(request.body), hash);
  // The same key on the same path for another operation is another request.
  const std::string_view parts[] = {"oncekey operation 1",
                                    request.operation,
                                    {reinterpret_cast<const char*>(asked.bytes.data()), asked.bytes.size()}};
  identity.fingerprint = Fingerprint{hash.of(parts)};
  return identity;
}

} // namespace oncekey::phases

std::optional<oncekey::RunnerPolicy> oncekey::runner_policy(std::string_view name) {
  const std::optional<Policy> named = policy_by_name(name);
  if (!named) return std::nullopt;
  return phases::with_rules(*named, RunnerPolicy{});
}
