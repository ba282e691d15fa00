#include "admin/key_search.h"

#include "core/key.h"
#include "core/path.h"
#include "core/redaction.h"
#include "core/scope.h"
#include "gateway/routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace oncekey {
namespace {

using Certificates = std::vector<std::optional<CertificateName>>;

// The source that `principal` is for: the first that a request must have.
const ScopeSource* main_source(const Policy& policy) {
  for (const ScopeSource& source : policy.scope) {
    if (!source.optional && source.kind != ScopeSource::Kind::global && source.kind != ScopeSource::Kind::host)
      return &source;
  }
  return nullptr;
}

// The head of a request as that account sends it.
Headers headers_of(const Policy& policy, const KeySearch& search) {
  Headers headers = search.headers;
  const ScopeSource* const source = main_source(policy);
  if (source == nullptr || search.principal.empty()) return headers;
  switch (source->kind) {
    case ScopeSource::Kind::header:
      if (!headers.has(source->name)) headers.add(source->name, search.principal);
      break;
    case ScopeSource::Kind::cookie:
      if (!headers.has("Cookie")) headers.add("Cookie", fmt::format("{}={}", source->name, search.principal));
      break;
    case ScopeSource::Kind::jwt:
      if (!headers.has("Authorization")) {
        const bool bare = search.principal.find(' ') == std::string::npos;
        headers.add("Authorization", bare ? "Bearer " + search.principal : search.principal);
      }
      break;
    case ScopeSource::Kind::client_cert:
    case ScopeSource::Kind::host:
    case ScopeSource::Kind::global:
      break;
  }
  return headers;
}

// A name does not tell whether it is a URI or a DNS name: both are tried.
Certificates certificates_of(const Policy& policy, const KeySearch& search) {
  const ScopeSource* const source = main_source(policy);
  if (source == nullptr || source->kind != ScopeSource::Kind::client_cert || search.principal.empty())
    return {std::nullopt};
  return {CertificateName{CertificateName::Kind::uri, search.principal, ""},
          CertificateName{CertificateName::Kind::dns, search.principal, ""}};
}

// The key as given, and as the route's clients write it in their header: a listing shows keys without quotes, and keys
// from bodies have none.
std::vector<std::string> key_texts(const Policy& policy, const KeySearch& search) {
  std::vector<std::string> texts{search.key};
  ParsedKey parsed = parse_key_header(policy.key_syntax, policy.strict, search.key);
  if (auto* const key = std::get_if<std::string>(&parsed); key != nullptr && *key != search.key)
    texts.push_back(std::move(*key));
  return texts;
}

// Calls `use(principal, policy, headers)` for each account of the route that is meant: none if what is given does not
// name one.
template <class Use>
void each_account(const Policy& of_route, const KeySearch& search, const IdRules& rules, const Use& use) {
  const std::optional<RouteTrust> trust = rules.trust.of(of_route);
  const std::shared_ptr<const Accounts> accounts =
      !trust || trust->accounts == nullptr ? nullptr : trust->accounts->accounts.get();
  // An operator's search is trusted: an expired token still names its account.
  Policy policy = of_route;
  policy.tokens.unverified = true;
  const Headers headers = headers_of(policy, search);
  for (const std::optional<CertificateName>& certificate : certificates_of(policy, search)) {
    Caller caller;
    caller.accounts = accounts.get();
    caller.certificate = certificate ? &*certificate : nullptr;
    const auto principal = find_principal(policy, headers, caller);
    if (const auto* named = std::get_if<Principal>(&principal)) use(*named, policy, headers);
  }
}

// The ids of the account for one request.
std::vector<RecordId> ids_for(const Policy& of_route, const KeySearch& search, const IdRules& rules,
                              std::string_view method, std::string_view target) {
  std::vector<RecordId> ids;
  each_account(of_route, search, rules, [&](const Principal& account, const Policy& policy, const Headers& headers) {
    for (const std::string& key : key_texts(policy, search))
      ids.push_back(record_id(policy, account, {method, target, headers}, KeyKind::client, key, rules.hash));
  });
  return ids;
}

template <class T>
bool holds(const std::vector<T>& all, const T& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

const Route* route_of(const Record& record, const Config& config) {
  const auto found = std::find_if(config.routes.begin(), config.routes.end(),
                                  [&](const Route& each) { return each.name == record.route; });
  return found == config.routes.end() ? nullptr : &*found;
}

bool is_meant(const KeySearch& search, const Route& route) {
  return search.route.empty() || search.route == route.name || search.route == route.path;
}

std::vector<std::string> methods_of(const KeySearch& search, const Policy& policy) {
  if (!search.method.empty()) return {search.method};
  return {policy.methods.begin(), policy.methods.end()};
}

std::string_view without_query(std::string_view target) { return target.substr(0, target.find('?')); }

bool is_path(std::string_view target, std::string_view path, PathCase path_case) {
  const NormalPath its(without_query(target));
  const NormalPath given(without_query(path));
  if (path_case == PathCase::ignore) return equal_ignoring_case(its.text_with_slashes(), given.text_with_slashes());
  return its.text_with_slashes() == given.text_with_slashes();
}

// The path that its requests have, where that is known.
std::optional<std::string> path_of(const KeySearch& search, const Route& route) {
  if (!search.path.empty()) return std::string(without_query(search.path));
  if (route.path.find('*') == std::string::npos) return route.path;
  return std::nullopt;
}

} // namespace

SearchedIds ids_of(const KeySearch& search, const IdRules& rules) {
  SearchedIds found;
  const auto is_missing = [&](std::string what) {
    found.complete = false;
    if (found.missing.empty()) found.missing = std::move(what);
  };
  for (const Route& route : rules.config.routes) {
    if (!is_meant(search, route)) continue;
    const std::optional<std::string> path = path_of(search, route);
    const bool by_operation = route.policy.identity == Identity::operation_key;
    for (const std::string& method : methods_of(search, route.policy)) {
      if (!search.path.empty() && match_route(rules.config.routes, method, NormalPath(*path)).route != &route) continue;
      if (by_operation && !path) {
        is_missing(fmt::format("--path: route {} tells keys apart by method and path", route.name));
        break;
      }
      const std::vector<RecordId> ids = ids_for(route.policy, search, rules, method, path ? *path : "/");
      if (ids.empty()) is_missing(fmt::format("--principal: the account, as the scope of route {} asks", route.name));
      for (const RecordId& id : ids) {
        if (!holds(found.ids, id)) found.ids.push_back(id);
      }
      if (!by_operation) break; // the method makes no difference
    }
  }
  return found;
}

std::vector<std::string> key_texts_of(const KeySearch& search, const IdRules& rules) {
  std::vector<std::string> all{search.key};
  for (const Route& route : rules.config.routes) {
    if (!is_meant(search, route)) continue;
    for (std::string& text : key_texts(route.policy, search)) {
      if (route.policy.redact) text = redacted(rules.hash, text);
      if (!holds(all, text)) all.push_back(std::move(text));
    }
  }
  return all;
}

bool is_searched(const RecordId& id, const Record& record, const KeySearch& search, const IdRules& rules) {
  const Route* const route = route_of(record, rules.config);
  if (!search.route.empty() && (route == nullptr || !is_meant(search, *route))) return false;
  if (!search.method.empty() && record.method != search.method) return false;
  const PathCase path_case = route == nullptr ? PathCase::exact : route->policy.path_case;
  const std::string_view path = without_query(search.path);
  if (!path.empty() && !is_path(record.target, path, path_case) && record.target != redacted(rules.hash, path))
    return false;
  std::vector<std::string> texts{search.key};
  if (route != nullptr) texts = key_texts(route->policy, search);
  if (std::none_of(texts.begin(), texts.end(), [&](const std::string& text) {
        return record.key == text || record.key == redacted(rules.hash, text);
      })) {
    return false;
  }
  const bool names_account = !search.principal.empty() || search.headers.size() != 0;
  return !names_account || belongs_to(id, record, search, rules);
}

bool belongs_to(const RecordId& id, const Record& record, const KeySearch& search, const IdRules& rules) {
  const Route* const route = route_of(record, rules.config);
  if (route == nullptr) return false;
  // Nothing but the tag tells of an account where key and path are hashes. A record without a client's key has its
  // fingerprint's.
  const std::optional<AccountTag>& tag = record.context.account;
  const KeyKind kind = record.key.empty() ? KeyKind::fingerprint : KeyKind::client;
  const std::string_view made(reinterpret_cast<const char*>(record.fingerprint.bytes.data()),
                              record.fingerprint.bytes.size());
  const std::string_view key = kind == KeyKind::fingerprint ? made : record.key;
  bool found = false;
  each_account(route->policy, search, rules, [&](const Principal& account, const Policy& policy, const Headers& all) {
    const RequestView request{record.method, record.target, all};
    found = found || (tag ? account_tag(account, rules.hash) == *tag
                          : record_id(policy, account, request, kind, key, rules.hash) == id);
  });
  return found;
}

} // namespace oncekey
