#include "core/jwt.h"

#include "base/crypto.h"
#include "base/faults.h"
#include "core/json_scan.h"

#include <boost/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>
#include <tuple>
#include <unordered_set>

namespace oncekey {
namespace {

// A member of the one JSON object that a header or payload is.
struct JsonMember {
  enum class Kind {
    string, // `text` is the decoded string
    number, // `text` is the number as it was written
    list,   // `texts` are its strings, if it holds nothing else
    other,
  };
  Kind kind = Kind::other;
  std::string text;
  std::vector<std::string> texts;
};

using JsonMembers = std::map<std::string, JsonMember, std::less<>>;

// A name that occurs twice, at any depth, makes the text unreadable: of two readers one would take the first and the
// other the last.
class MemberCollector {
 public:
  void object_begins() {
    value(JsonMember::Kind::other, {});
    frames_.push_back({true, {}});
  }
  void array_begins() {
    value(JsonMember::Kind::list, {});
    frames_.push_back({false, {}});
  }
  void object_ends() { frames_.pop_back(); }
  void array_ends() { frames_.pop_back(); }
  void name(std::string_view decoded) {
    if (!frames_.back().names.emplace(decoded).second) repeated_ = true;
    if (frames_.size() == 1) current_ = &members_[std::string(decoded)];
  }
  void string(std::string_view text) { value(JsonMember::Kind::string, text); }
  void number(std::string_view text) { value(JsonMember::Kind::number, text); }
  void literal(std::string_view) { value(JsonMember::Kind::other, {}); }

  bool repeated() const { return repeated_; }
  JsonMembers take() { return std::move(members_); }

 private:
  struct Frame {
    bool object;
    std::unordered_set<std::string> names;
  };

  void value(JsonMember::Kind kind, std::string_view text) {
    if (frames_.empty()) return;
    if (frames_.size() == 1) {
      current_->kind = kind;
      current_->text = text;
    } else if (frames_.size() == 2 && !frames_.back().object && current_->kind == JsonMember::Kind::list) {
      // One item of another kind, and it is no list of strings.
      if (kind == JsonMember::Kind::string) {
        current_->texts.emplace_back(text);
      } else {
        current_->kind = JsonMember::Kind::other;
      }
    }
  }

  JsonMembers members_;
  JsonMember* current_ = nullptr;
  std::vector<Frame> frames_;
  bool repeated_ = false;
};

// Nothing if the text is not one object, is beyond the limits of json_scan.h, or has a name twice.
std::optional<JsonMembers> read_members(std::string_view json) {
  const std::size_t begin = json.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos || json[begin] != '{') return std::nullopt;
  MemberCollector collector;
  if (!scan_json(json, collector) || collector.repeated()) return std::nullopt;
  return collector.take();
}

struct TokenParts {
  std::string_view header;
  std::string_view payload;
  std::string_view signature;
  std::string_view signed_part; // the first two, with their dot
};

std::optional<TokenParts> split(std::string_view token) {
  const std::size_t first = token.find('.');
  if (first == std::string_view::npos) return std::nullopt;
  const std::size_t second = token.find('.', first + 1);
  if (second == std::string_view::npos || token.find('.', second + 1) != std::string_view::npos) return std::nullopt;
  return TokenParts{token.substr(0, first), token.substr(first + 1, second - first - 1), token.substr(second + 1),
                    token.substr(0, second)};
}

std::optional<JsonMembers> members_of(std::string_view base64url) {
  const auto json = base64url_decode_strictly(base64url);
  return json ? read_members(*json) : std::nullopt;
}

const JsonMember* find(const JsonMembers& members, std::string_view name) {
  const auto found = members.find(name);
  return found == members.end() ? nullptr : &found->second;
}

bool is_whole(std::string_view number) { return number.find_first_of(".eE") == std::string_view::npos; }

// A NumericDate may have a fraction; one that is no finite number is none.
std::optional<double> seconds_of(const JsonMember& member) {
  if (member.kind != JsonMember::Kind::number) return std::nullopt;
  double seconds = 0;
  const char* const end = member.text.data() + member.text.size();
  const auto [read_to, error] = std::from_chars(member.text.data(), end, seconds);
  if (error != std::errc{} || read_to != end || !std::isfinite(seconds)) return std::nullopt;
  return seconds;
}

bool is_one_of(std::string_view text, const std::vector<std::string>& list) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

bool names_one_of(const JsonMember* audience, const std::vector<std::string>& wanted) {
  if (audience == nullptr) return false;
  if (audience->kind == JsonMember::Kind::string) return is_one_of(audience->text, wanted);
  if (audience->kind != JsonMember::Kind::list) return false;
  return std::any_of(audience->texts.begin(), audience->texts.end(),
                     [&](const std::string& text) { return is_one_of(text, wanted); });
}

VerifiedToken claims_of(const JsonMembers& payload, const std::vector<std::string_view>& wanted) {
  VerifiedToken token;
  if (const JsonMember* issuer = find(payload, "iss"); issuer != nullptr && issuer->kind == JsonMember::Kind::string)
    token.issuer = issuer->text;
  for (const std::string_view name : wanted) {
    const JsonMember* const claim = find(payload, name);
    if (claim == nullptr) continue;
    const bool number = claim->kind == JsonMember::Kind::number && is_whole(claim->text);
    if (number || claim->kind == JsonMember::Kind::string)
      token.claims.push_back({std::string(name), number, claim->text});
  }
  return token;
}

// An `exp` beyond this counts as this: it may be any number, and must fit into 64 bits.
constexpr std::int64_t kFarAway = std::int64_t{1} << 52;

TokenJudgement judge_payload(std::string_view encoded, const TokenRules& rules,
                             const std::vector<std::string_view>& claims, std::int64_t now) {
  const auto payload = members_of(encoded);
  if (!payload) return RefusedToken{"The token's payload cannot be read."};
  const JsonMember* const expires = find(*payload, "exp");
  if (expires == nullptr) return RefusedToken{"The token has no exp: tokens that never expire are not accepted."};
  const auto expires_at = seconds_of(*expires);
  if (!expires_at) return RefusedToken{"The token's exp is not a number."};
  const auto right_now = static_cast<double>(now);
  if (right_now >= *expires_at + kTokenLeewaySeconds) return RefusedToken{"The token has expired."};
  if (const JsonMember* const not_before = find(*payload, "nbf")) {
    const auto from = seconds_of(*not_before);
    if (!from) return RefusedToken{"The token's nbf is not a number."};
    if (right_now < *from - kTokenLeewaySeconds) return RefusedToken{"The token is not valid yet."};
  }
  if (const JsonMember* const issuer = find(*payload, "iss");
      issuer != nullptr && issuer->kind != JsonMember::Kind::string)
    return RefusedToken{"The token's iss is not text."};
  VerifiedToken token = claims_of(*payload, claims);
  if (!rules.issuers.empty() && !(token.issuer && is_one_of(*token.issuer, rules.issuers)))
    return RefusedToken{"The token is from another issuer."};
  if (!rules.audiences.empty() && !names_one_of(find(*payload, "aud"), rules.audiences))
    return RefusedToken{"The token is for another audience."};
  token.expires = static_cast<std::int64_t>(std::min(*expires_at, static_cast<double>(kFarAway)));
  return token;
}

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

const TokenClaim* VerifiedToken::find(std::string_view name) const {
  for (const TokenClaim& claim : claims) {
    if (claim.name == name) return &claim;
  }
  return nullptr;
}

TokenJudgement judge_token(std::string_view token, const JwkSet& keys, const TokenRules& rules,
                           const std::vector<std::string_view>& claims, std::int64_t now) {
  if (token.size() > kTokenBytesMax) return RefusedToken{"The token is too long."};
  const auto parts = split(token);
  if (!parts) return RefusedToken{"The token is not a signed JWT."};
  const auto header = members_of(parts->header);
  const auto signature = base64url_decode_strictly(parts->signature);
  if (!header || !signature) return RefusedToken{"The token cannot be read."};
  // RFC 7515, 4.1.11: an extension that must be understood and is not leads to refusal. None is supported here.
  if (header->contains("crit")) return RefusedToken{"The token has critical extensions, of which none is supported."};
  const JsonMember* const alg = find(*header, "alg");
  const auto scheme = alg != nullptr && alg->kind == JsonMember::Kind::string ? scheme_of(alg->text) : std::nullopt;
  if (!scheme) return RefusedToken{"The token's algorithm is not accepted: EdDSA, ES256, RS256, PS256 and HS256 are."};
  const JsonMember* const kid = find(*header, "kid");
  if (kid != nullptr && kid->kind != JsonMember::Kind::string) return RefusedToken{"The token's kid is not text."};

  // A token with a `kid` is checked with the keys of that name alone, and one without with any key that fits. Several
  // keys may share a name while an issuer rotates them.
  std::size_t tried = 0;
  bool known = kid == nullptr;
  for (const Jwk& key : keys.keys) {
    if (kid != nullptr && (key.kid != kid->text || key.kid.empty())) continue;
    known = true;
    if (!key.fits(*scheme) || tried == kKeysTriedMax) continue;
    ++tried;
    if (key.key.verify(*scheme, parts->signed_part, *signature))
      return judge_payload(parts->payload, rules, claims, now);
  }
  if (!known) return UnknownTokenKey{};
  return RefusedToken{"The token's signature does not hold."};
}

std::optional<std::string_view> bearer_token(std::string_view authorization) {
  constexpr std::string_view kScheme = "Bearer ";
  if (!starts_with_ignoring_case(authorization, kScheme)) return std::nullopt;
  authorization.remove_prefix(kScheme.size());
  while (authorization.starts_with(' ')) authorization.remove_prefix(1);
  return authorization;
}

std::optional<VerifiedToken> read_unverified(std::string_view token, const std::vector<std::string_view>& claims) {
  const auto parts = split(token);
  const auto payload = parts ? members_of(parts->payload) : std::nullopt;
  if (!payload) return std::nullopt;
  return claims_of(*payload, claims);
}

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
