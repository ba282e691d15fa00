#include "core/scope.h"

#include "core/json_pointer.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstring>
#include <optional>

namespace oncekey {
namespace {

Refusal missing(std::string detail) { return {RefusalCode::principal_missing, std::move(detail), std::nullopt, {}}; }

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  }
  return lower;
}

struct Value {
  std::string_view kind;
  std::optional<std::string_view> text;
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

FoundValue from_header(const Headers& headers, const std::string& name) {
  auto value = single_header(headers, name);
  if (auto* refused = std::get_if<Refusal>(&value)) return std::move(*refused);
  return Value{"header", std::get<0>(value)};
}

// The middle part of a JWT in `Authorization: Bearer`. The signature is not checked here. The API behind us checks it
// for what is executed, but a replay never gets there: where clients reach the gateway directly, whoever can guess both
// an account's claim and its key can read the stored answer. docs/POLICIES.md says when to use this source.
bool jwt_payload(std::string_view authorization, std::string& payload) {
  constexpr std::string_view kScheme = "Bearer ";
  if (!starts_with_ignoring_case(authorization, kScheme)) return false;
  std::string_view token = authorization.substr(kScheme.size());
  while (token.starts_with(' ')) token.remove_prefix(1);
  const std::size_t first = token.find('.');
  if (first == std::string_view::npos) return false;
  const std::size_t second = token.find('.', first + 1);
  if (second == std::string_view::npos || token.find('.', second + 1) != std::string_view::npos) return false;
  return base64url_decode(token.substr(first + 1, second - first - 1), payload);
}

bool is_integer(std::string_view number) { return number.find_first_of(".eE") == std::string_view::npos; }

FoundValue from_jwt(const Headers& headers, const std::string& claim, std::list<std::string>& decoded) {
  auto value = single_header(headers, "Authorization");
  if (auto* refused = std::get_if<Refusal>(&value)) return std::move(*refused);
  const auto authorization = std::get<0>(value);
  std::string payload;
  if (!authorization || !jwt_payload(*authorization, payload)) return Value{"jwt", std::nullopt};
  std::string pointer;
  append_pointer_token(pointer, claim);
  JsonPlace place = find_in_json(payload, pointer);
  const bool number = place.kind == JsonPlace::Kind::number && is_integer(place.text);
  if (!number && place.kind != JsonPlace::Kind::string) return Value{"jwt", std::nullopt};
  return Value{number ? "jwt-number" : "jwt", decoded.emplace_back(std::move(place.text))};
}

FoundValue from_cookie(const Headers& headers, const std::string& name) {
  std::optional<std::string_view> value;
  for (std::size_t i = 0; i < headers.size(); ++i) {
    const Field field = headers[i];
    if (!equal_ignoring_case(field.name, "Cookie")) continue;
    std::string_view rest = field.value;
    while (!rest.empty()) {
      const std::size_t semicolon = rest.find(';');
      std::string_view pair = rest.substr(0, semicolon);
      rest = semicolon == std::string_view::npos ? std::string_view{} : rest.substr(semicolon + 1);
      while (pair.starts_with(' ')) pair.remove_prefix(1);
      if (!pair.starts_with(name) || pair.size() <= name.size() || pair[name.size()] != '=') continue;
      if (value) return missing(fmt::format("The cookie {} was sent more than once.", name));
      value = pair.substr(name.size() + 1);
    }
  }
  return Value{"cookie", value};
}

std::string_view what_is_missing(ScopeSource::Kind kind) {
  switch (kind) {
    case ScopeSource::Kind::header:
      return "header";
    case ScopeSource::Kind::jwt:
      return "bearer token with the claim";
    case ScopeSource::Kind::cookie:
      return "cookie";
    case ScopeSource::Kind::global:
      break;
  }
  return "source";
}

} // namespace

std::variant<Principal, Refusal> find_principal(const Policy& policy, const Headers& headers) {
  Principal principal;
  principal.parts.reserve(policy.scope.size());
  for (const ScopeSource& source : policy.scope) {
    FoundValue found = Value{"global", std::string_view{}};
    switch (source.kind) {
      case ScopeSource::Kind::header:
        found = from_header(headers, source.name);
        break;
      case ScopeSource::Kind::jwt:
        found = from_jwt(headers, source.name, principal.decoded);
        break;
      case ScopeSource::Kind::cookie:
        found = from_cookie(headers, source.name);
        break;
      case ScopeSource::Kind::global:
        break;
    }
    if (auto* refused = std::get_if<Refusal>(&found)) return std::move(*refused);
    const Value& value = std::get<Value>(found);
    const bool needed = !source.optional && source.kind != ScopeSource::Kind::global;
    if (needed && (!value.text || value.text->empty())) {
      return missing(fmt::format("The request has no {} {}.", what_is_missing(source.kind), source.name));
    }
    principal.parts.push_back({value.kind, &source, value.text.has_value(), value.text.value_or(std::string_view{})});
  }
  // No source at all is a configuration that check_config refuses; refusing here too keeps the promise local.
  if (principal.parts.empty()) return missing("The route names no scope.");
  return principal;
}

std::optional<AccountId> account_of(const Principal& principal, std::uint64_t seed) {
  std::uint64_t hash = seed;
  for (const PrincipalPart& part : principal.parts) {
    if (part.source->kind == ScopeSource::Kind::global) return std::nullopt;
    hash =
        XXH3_64bits_withSeed(part.value.data(), part.value.size(), hash + part.value.size() + (part.present ? 1 : 0));
  }
  AccountId account;
  static_assert(sizeof hash == sizeof account.bytes);
  std::memcpy(account.bytes.data(), &hash, sizeof hash);
  return account;
}

RecordId record_id(const Policy& policy, const Principal& principal, const RequestView& request, KeyKind kind,
                   std::string_view key, const KeyedHash& hash) {
  // The number of parts stands in front, so that no list of them can pass for another.
  const std::string count = std::to_string(principal.parts.size());
  std::list<std::string> names;
  std::vector<std::string_view> parts;
  parts.reserve(8 + 4 * principal.parts.size());
  parts.insert(parts.end(), {"oncekey identity 1", count});
  for (const PrincipalPart& part : principal.parts) {
    // Header names compare without case, and two gateways on one store may spell them differently.
    std::string_view name = part.source->name;
    if (part.source->kind == ScopeSource::Kind::header) name = names.emplace_back(lower_case(name));
    parts.insert(parts.end(), {part.kind, name, part.present ? "present" : "absent", part.value});
  }
  switch (policy.identity) {
    case Identity::key:
      parts.insert(parts.end(), {"", ""});
      break;
    case Identity::operation_key:
      parts.insert(parts.end(), {request.method, request.target.substr(0, request.target.find('?'))});
      break;
  }
  parts.insert(parts.end(), {kind == KeyKind::client ? "key" : "fingerprint", key});
  return RecordId{hash.of(parts)};
}

} // namespace oncekey
