#include "core/scope.h"

#include "base/ascii.h"
#include "core/path.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstring>
#include <optional>

namespace oncekey {
namespace {

Refusal missing(std::string detail) { return {RefusalCode::principal_missing, std::move(detail)}; }

struct Value {
  std::string_view kind;
  std::optional<std::string_view> text;
  std::optional<std::string_view> issuer{}; // of a token or certificate
};
using FoundValue = std::variant<Value, Refusal>;

// A header that must not be there twice.
std::variant<std::optional<std::string_view>, Refusal> single_header(const Headers& headers, std::string_view name) {
  std::optional<std::string_view> value;
  for (std::size_t i = 0; i < headers.size(); ++i) {
    const Field field = headers[i];
    if (!equal_ignoring_case(field.name, name)) continue;
    if (value) return missing(fmt::format("{} was sent more than once.", name));
    value = field.value;
  }
  return value;
}

bool is_cookie_blank(char c) { return c == ' ' || c == '\t'; }

// Whether credentials are spelled as nearly all clients do: the scheme with one capital in front, one space.
bool usual_spelling(std::string_view scheme, std::string_view behind) {
  if (!behind.starts_with(' ') || behind.size() < 2 || is_cookie_blank(behind[1])) return false;
  for (std::size_t i = 0; i < scheme.size(); ++i) {
    const bool capital = scheme[i] >= 'A' && scheme[i] <= 'Z';
    const bool small = scheme[i] >= 'a' && scheme[i] <= 'z';
    if (i == 0 ? small : capital) return false;
  }
  return true;
}

// RFC 9110, 11.4: the scheme compares without case, and blanks separate it from what follows. `Bearer t`, `bearer t`
// and `Bearer  t` are one account. Credentials of one word have no scheme and stay as they are.
std::string_view normalized_credentials(std::string_view value, std::list<std::string>& decoded) {
  const std::size_t blank = value.find_first_of(" \t");
  if (blank == std::string_view::npos) return value;
  const std::string_view scheme = value.substr(0, blank);
  const std::string_view behind = value.substr(blank);
  if (usual_spelling(scheme, behind)) return value;
  std::string& spelled = decoded.emplace_back(lower_case(scheme));
  if (!spelled.empty() && spelled[0] >= 'a' && spelled[0] <= 'z')
    spelled[0] = static_cast<char>(spelled[0] - 'a' + 'A');
  spelled.append(" ").append(trimmed(behind));
  return spelled;
}

FoundValue from_header(const Headers& headers, const std::string& name, std::list<std::string>& decoded) {
  auto value = single_header(headers, name);
  if (auto* refused = std::get_if<Refusal>(&value)) return std::move(*refused);
  std::optional<std::string_view> text = std::get<0>(value);
  const bool credentials =
      equal_ignoring_case(name, "Authorization") || equal_ignoring_case(name, "Proxy-Authorization");
  if (text && credentials) text = normalized_credentials(*text, decoded);
  return Value{"header", text};
}

FoundValue from_host(const Headers& headers, std::list<std::string>& decoded) {
  std::string spelled;
  const std::string_view name = host_name(headers, spelled);
  if (name.empty()) return Value{"host", std::nullopt};
  return Value{"host", decoded.emplace_back(name)};
}

FoundValue from_jwt(const Policy& policy, const ScopeSource& source, const Headers& headers, const Caller& caller,
                    std::list<std::string>& decoded) {
  auto value = single_header(headers, "Authorization");
  if (auto* refused = std::get_if<Refusal>(&value)) return std::move(*refused);
  const auto authorization = std::get<0>(value);
  const auto token = authorization ? bearer_token(*authorization) : std::nullopt;
  if (!token || token->empty()) return Value{"jwt", std::nullopt};

  std::optional<VerifiedToken> unverified;
  const VerifiedToken* read = nullptr;
  if (policy.tokens.unverified) {
    unverified = read_unverified(*token, {source.name});
    if (!unverified) return Value{"jwt", std::nullopt};
    read = &*unverified;
  } else if (caller.tokens != nullptr) {
    const TokenVerdict& verdict = caller.tokens->judge(*token);
    if (const auto* refused = std::get_if<Refusal>(&verdict)) return *refused;
    read = &std::get<VerifiedToken>(verdict);
  } else {
    return Refusal{RefusalCode::jwks_unavailable};
  }
  const TokenClaim* const claim = read->find(source.name);
  if (claim == nullptr || claim->value.empty()) {
    if (source.optional || policy.tokens.unverified) return Value{"jwt", std::nullopt};
    return Refusal{RefusalCode::token_invalid, fmt::format("The token has no claim {}.", source.name)};
  }
  std::optional<std::string_view> issuer;
  if (read->issuer) issuer = decoded.emplace_back(*read->issuer);
  return Value{claim->number ? "jwt-number" : "jwt", decoded.emplace_back(claim->value), issuer};
}

FoundValue from_certificate(const CertificateName* certificate) {
  if (certificate == nullptr) return Value{"client-cert", std::nullopt};
  static constexpr std::string_view kKinds[] = {"client-cert-uri", "client-cert-dns", "client-cert-subject"};
  Value value{kKinds[static_cast<std::size_t>(certificate->kind)], certificate->value};
  // A subject is unique for one issuer.
  if (certificate->kind == CertificateName::Kind::subject) value.issuer = certificate->issuer;
  return value;
}

// A credential of the accounts file stands for its account.
void map_to_account(const ScopeSource& source, const Accounts& accounts, Value& value,
                    std::list<std::string>& decoded) {
  if (!value.text || value.text->empty()) return;
  const bool header = source.kind == ScopeSource::Kind::header;
  const std::string* const account = accounts.of(header ? credential_in(source.name, *value.text) : *value.text);
  if (account != nullptr) value = Value{"account", decoded.emplace_back(*account)};
}

FoundValue from_cookie(const Headers& headers, const std::string& name) {
  std::optional<std::string_view> value;
  for (std::size_t i = 0; i < headers.size(); ++i) {
    const Field field = headers[i];
    if (!equal_ignoring_case(field.name, "Cookie")) continue;
    std::string_view rest = field.value;
    while (!rest.empty()) {
      const std::size_t semicolon = rest.find(';');
      const std::string_view pair = rest.substr(0, semicolon);
      rest = semicolon == std::string_view::npos ? std::string_view{} : rest.substr(semicolon + 1);
      // As lenient as web frameworks are: a cookie that the API finds must not be missed here.
      const std::size_t equals = pair.find('=');
      if (equals == std::string_view::npos || trimmed(pair.substr(0, equals)) != name) continue;
      if (value) return missing(fmt::format("The cookie {} was sent more than once.", name));
      value = trimmed(pair.substr(equals + 1));
      if (value->size() >= 2 && value->front() == '"' && value->back() == '"')
        value = value->substr(1, value->size() - 2);
    }
  }
  return Value{"cookie", value};
}

// In the order of ScopeSource::Kind.
constexpr std::string_view kMissing[] = {
    "header", "bearer token with the claim", "cookie", "client certificate", "header Host", "source"};
static_assert(std::size(kMissing) == static_cast<std::size_t>(ScopeSource::Kind::global) + 1);

// The path a record goes by; in `lowered` where the API compares paths without case.
std::string_view identity_path(const Policy& policy, const NormalPath& path, std::string& lowered) {
  if (policy.path_case == PathCase::exact) return path.text_with_slashes();
  lowered = lower_case(path.text_with_slashes());
  return lowered;
}

} // namespace

std::variant<Principal, Refusal> find_principal(const Policy& policy, const Headers& headers, const Caller& caller) {
  Principal principal;
  principal.parts.reserve(policy.scope.size());
  for (const ScopeSource& source : policy.scope) {
    FoundValue found = Value{"global", std::string_view{}};
    switch (source.kind) {
      case ScopeSource::Kind::header:
        found = from_header(headers, source.name, principal.decoded);
        break;
      case ScopeSource::Kind::jwt:
        found = from_jwt(policy, source, headers, caller, principal.decoded);
        break;
      case ScopeSource::Kind::cookie:
        found = from_cookie(headers, source.name);
        break;
      case ScopeSource::Kind::client_cert:
        found = from_certificate(caller.certificate);
        break;
      case ScopeSource::Kind::host:
        found = from_host(headers, principal.decoded);
        break;
      case ScopeSource::Kind::global:
        break;
    }
    if (auto* refused = std::get_if<Refusal>(&found)) return std::move(*refused);
    Value& value = std::get<Value>(found);
    const bool credential = source.kind == ScopeSource::Kind::header || source.kind == ScopeSource::Kind::cookie;
    if (credential && caller.accounts != nullptr) map_to_account(source, *caller.accounts, value, principal.decoded);
    const bool needed = !source.optional && source.kind != ScopeSource::Kind::global;
    if (needed && (!value.text || value.text->empty())) {
      const std::string_view blank = source.name.empty() ? "" : " ";
      return missing(fmt::format("The request has no {}{}{}.", kMissing[static_cast<std::size_t>(source.kind)], blank,
                                 source.name));
    }
    if (value.issuer) principal.parts.push_back({"issuer", &source, true, *value.issuer});
    principal.parts.push_back({value.kind, &source, value.text.has_value(), value.text.value_or(std::string_view{})});
  }
  // problems_of() refuses a configuration without a source. The check here makes this function safe by itself.
  if (principal.parts.empty()) return missing("The route names no scope.");
  return principal;
}

std::optional<AccountId> account_of(const Principal& principal, std::uint64_t seed) {
  std::uint64_t hash = seed;
  for (const PrincipalPart& part : principal.parts) {
    if (part.source->kind == ScopeSource::Kind::global) return std::nullopt;
    // The kind is hashed too: a credential that is spelled like an account's name is not that account.
    for (const std::string_view text : {part.kind, part.value}) {
      hash = XXH3_64bits_withSeed(text.data(), text.size(), hash + text.size() + (part.present ? 1 : 0));
    }
  }
  AccountId account;
  static_assert(sizeof hash == sizeof account.bytes);
  std::memcpy(account.bytes.data(), &hash, sizeof hash);
  return account;
}

bool believes_callers(const Policy& policy) {
  return !policy.tokens.unverified || !has_scope(policy, ScopeSource::Kind::jwt);
}

void append_parts(const Principal& principal, std::vector<std::string_view>& parts, std::list<std::string>& names) {
  for (const PrincipalPart& part : principal.parts) {
    std::string_view name = part.source->name;
    if (part.source->kind == ScopeSource::Kind::header) name = names.emplace_back(lower_case(name));
    parts.insert(parts.end(), {part.kind, name, part.present ? "present" : "absent", part.value});
  }
}

AccountTag account_tag(const Principal& principal, const KeyedHash& hash) {
  const std::string count = std::to_string(principal.parts.size());
  std::list<std::string> names;
  std::vector<std::string_view> parts{"oncekey account 1", count};
  append_parts(principal, parts, names);
  const HashBytes bytes = hash.of(parts);
  AccountTag tag;
  std::copy_n(bytes.begin(), tag.size(), tag.begin());
  return tag;
}

RecordId record_id(const Policy& policy, const Principal& principal, const RequestView& request, KeyKind kind,
                   std::string_view key, const KeyedHash& hash) {
  // The number of parts comes first, so that no two lists of parts have the same hash.
  const std::string count = std::to_string(principal.parts.size());
  const NormalPath path(request.target.substr(0, request.target.find('?')));
  std::string lowered;
  std::list<std::string> names;
  std::vector<std::string_view> parts;
  parts.reserve(8 + 4 * principal.parts.size());
  parts.insert(parts.end(), {"oncekey identity 1", count});
  append_parts(principal, parts, names);
  switch (policy.identity) {
    case Identity::key:
      parts.insert(parts.end(), {"", ""});
      break;
    case Identity::operation_key:
      parts.insert(parts.end(), {request.method, identity_path(policy, path, lowered)});
      break;
  }
  parts.insert(parts.end(), {kind == KeyKind::client ? "key" : "fingerprint", key});
  return RecordId{hash.of(parts)};
}

} // namespace oncekey
