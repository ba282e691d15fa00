#include "core/jwt.h"

#include "base/crypto.h"
#include "base/faults.h"

#include <boost/json.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <tuple>

namespace oncekey {
namespace {

namespace json = boost::json;

// An issuer has a handful: what signs, what is about to, and what still has tokens in the field.
constexpr std::size_t kKeysMax = 100;

std::optional<std::string_view> text_of(const json::object& object, std::string_view name) {
  const json::value* const found = object.if_contains({name.data(), name.size()});
  if (found == nullptr || !found->is_string()) return std::nullopt;
  return std::string_view(found->get_string().data(), found->get_string().size());
}

Result<std::string> bytes_of(const json::object& object, std::string_view name) {
  const auto text = text_of(object, name);
  auto bytes = text ? base64url_decode_strictly(*text) : std::nullopt;
  if (!bytes || bytes->empty()) return invalid("\"{}\" is missing or is not base64url", name);
  return *std::move(bytes);
}

// Whether the key says of itself that it checks signatures, or says nothing.
bool is_for_signatures(const json::object& key) {
  if (key.contains("use") && text_of(key, "use") != "sig") return false;
  const json::value* const operations = key.if_contains("key_ops");
  if (operations == nullptr) return true;
  if (!operations->is_array()) return false;
  for (const json::value& operation : operations->get_array()) {
    if (operation.is_string() && operation.get_string() == "verify") return true;
  }
  return false;
}

// The key made of the bytes of these members.
template <class Make, class... Names>
Result<VerificationKey> key_from(const json::object& key, Make make, Names... names) {
  const std::array parts{bytes_of(key, names)...};
  for (const Result<std::string>& part : parts)
    if (!part) return part.fault();
  return std::apply([&](const auto&... part) { return make(*part...); }, parts);
}

// Nothing for a key of a kind that is not used here.
std::optional<Result<VerificationKey>> key_of(const json::object& key, SecretKeys secrets) {
  const auto type = text_of(key, "kty");
  const auto curve = text_of(key, "crv");
  const bool private_part = type != "oct" && key.contains("d");
  std::optional<Result<VerificationKey>> made;
  if (type == "RSA") {
    made = key_from(key, VerificationKey::rsa, "n", "e");
  } else if (type == "EC" && curve == "P-256") {
    made = key_from(key, VerificationKey::p256, "x", "y");
  } else if (type == "OKP" && curve == "Ed25519") {
    made = key_from(key, VerificationKey::ed25519, "x");
  } else if (type == "oct") {
    made = secrets == SecretKeys::allowed
               ? key_from(key, VerificationKey::secret, "k")
               : invalid("a secret that is fetched from a URL can be fetched by others: give it in a file");
  }
  if (made && private_part)
    made = invalid("it holds the private part, \"d\", which only the issuer may have: give the public key");
  return made;
}

} // namespace

std::optional<SignatureScheme> scheme_of(std::string_view alg) {
  if (alg == "EdDSA" || alg == "Ed25519") return SignatureScheme::eddsa;
  if (alg == "ES256") return SignatureScheme::es256;
  if (alg == "RS256") return SignatureScheme::rs256;
  if (alg == "PS256") return SignatureScheme::ps256;
  if (alg == "HS256") return SignatureScheme::hs256;
  return std::nullopt;
}

std::chrono::seconds jwks_lifetime(const Headers& headers) {
  constexpr std::chrono::seconds kUsual = std::chrono::hours(1);
  constexpr std::chrono::seconds kShortest = std::chrono::minutes(1);
  constexpr std::chrono::seconds kLongest = std::chrono::hours(24);
  std::chrono::seconds lifetime = kUsual;
  for (std::size_t i = 0; i < headers.size(); ++i) {
    const Field field = headers[i];
    if (!equal_ignoring_case(field.name, "Cache-Control")) continue;
    for_each_list_item(field.value, [&](std::string_view item) {
      constexpr std::string_view kMaxAge = "max-age=";
      if (equal_ignoring_case(item, "no-store") || equal_ignoring_case(item, "no-cache")) lifetime = kShortest;
      if (!starts_with_ignoring_case(item, kMaxAge)) return;
      item.remove_prefix(kMaxAge.size());
      std::uint32_t seconds = 0;
      const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), seconds);
      if (error == std::errc{} && end == item.data() + item.size()) lifetime = std::chrono::seconds(seconds);
    });
  }
  return std::clamp(lifetime, kShortest, kLongest);
}

Result<JwkSet> parse_jwks(std::string_view text, SecretKeys secrets) {
  json::error_code error;
  const json::value document = json::parse({text.data(), text.size()}, error);
  const json::value* const keys = !error && document.is_object() ? document.get_object().if_contains("keys") : nullptr;
  if (keys == nullptr || !keys->is_array())
    return invalid(
        "expected a JSON Web Key Set, an object with the list \"keys\", as in {\"keys\":[{\"kty\":\"OKP\",...}]}");
  const json::array& list = keys->get_array();
  if (list.size() > kKeysMax) return invalid("the set has {} keys, and {} are allowed", list.size(), kKeysMax);

  JwkSet set;
  for (std::size_t i = 0; i < list.size(); ++i) {
    // RFC 7517, 5: what is not understood is left out.
    if (!list[i].is_object()) continue;
    const json::object& key = list[i].get_object();
    if (!is_for_signatures(key)) continue;
    std::optional<SignatureScheme> scheme;
    if (key.contains("alg")) {
      scheme = scheme_of(text_of(key, "alg").value_or(std::string_view{}));
      if (!scheme) continue;
    }
    auto made = key_of(key, secrets);
    if (!made) continue;
    const std::string kid(text_of(key, "kid").value_or(std::string_view{}));
    if (*made && scheme && !(*made)->fits(*scheme)) made = invalid("\"alg\" does not fit \"kty\"");
    if (!*made) {
      const std::string name = kid.empty() ? std::string("without a kid") : fmt::format("\"{}\"", kid);
      set.rejected.push_back(fmt::format("key {} ({}): {}", i + 1, name, made->fault().message));
      continue;
    }
    set.keys.push_back({kid, scheme, std::move(*made).value()});
  }
  if (set.keys.empty()) {
    return invalid(set.rejected.empty() ? "the set has no key for EdDSA, ES256, RS256, PS256 or HS256 signatures"
                                        : fmt::format("the set has no key that can be used: {}", set.rejected.front()));
  }
  return set;
}

} // namespace oncekey
